"""The capacity of a deployment as a person reads it: a table of pools, a bar for each, what to do."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from kvcanary.deployment.facts import Facts, Gpu
from kvcanary.record.run import RunRecord
from kvcanary.report.summary import MAX_NAME, finding_lines, harmless, headline_line, write_parts
from kvcanary.report.tables import table
from kvcanary.verdict.claims import Advice, Holding, Status

BAR = 24
"""Columns of a bar that stands for the whole context limit."""
MAX_BARS = 16
"""Bars that are drawn, the emptiest first: more are no help to the eye."""
GIB = 1 << 30
STYLE = {Status.PASS: "green", Status.FAIL: "red", Status.INCONCLUSIVE: "yellow"}
_WORDS = {Status.PASS: "holds", Status.FAIL: "fails", Status.INCONCLUSIVE: "unknown"}
_FIGURES = {
    "pool_tokens": "pool",
    "limit_tokens": "limit",
    "page_tokens": "page",
    "context_tokens": "context limit",
    "used_tokens": "use",
    "bytes_per_token": "bytes a token",
    "host_pool_tokens": "host memory tier",
}


def print_capacity(console: Console, record: RunRecord, path: str | None) -> None:
    """Write the report. ``path``: where the record lies."""
    plain = harmless(record)
    write_parts(console, _parts(plain, path, ascii_only=console.options.ascii_only))


def _parts(record: RunRecord, path: str | None, *, ascii_only: bool) -> Iterator[RenderableType]:
    info, verdict, facts = record.info, record.verdict, record.facts
    yield Text(
        f"kvcanary {info.kvcanary_version}  {info.target[:MAX_NAME]}  capacity, no prompt sent  "
        f"run {info.run:07x}"
    )
    if verdict is None:
        yield Text(f"\nNothing was judged: {record.stopped or 'interrupted'}", "bold yellow")
    else:
        yield Text("")
        yield headline_line(verdict)
    if facts:
        yield _promise(facts)
    if verdict and verdict.holdings:
        yield from _table(verdict.holdings)
        yield from _bars(
            verdict.holdings, facts.context_tokens if facts else None, ascii_only=ascii_only
        )
    if facts:
        yield from _gpus(facts.gpus)
        yield from _unknown(facts)
    for number, finding in enumerate(record.findings, start=1):
        yield from finding_lines(number, finding)
    if verdict:
        yield from _advice(verdict.advice)
    if path:
        yield Text(f"\nrecord  {path}")


def _promise(facts: Facts) -> Text:
    context = "unknown" if facts.context_tokens is None else f"{facts.context_tokens:,} tokens"
    output = f", {facts.output_tokens:,} of them output" if facts.output_tokens else ""
    return Text(f"\nPromised for one request: {context} ({facts.context_source}){output}")


def _table(holdings: Sequence[Holding]) -> Iterator[RenderableType]:
    """The pools; where their sizes come from is said below, since it takes more words than a column has."""
    sources = list(dict.fromkeys(h.source for h in holdings if h.source))
    rows = table("", "role", ">rank", ">pool", ">limit", ">page", ">use", "from", "verdict")
    for holding in holdings:
        rows.add_row(
            f"  {holding.worker}",
            holding.role,
            "-" if holding.rank is None else str(holding.rank),
            _number(holding.pool_tokens),
            _number(holding.limit_tokens),
            _number(holding.page_tokens),
            _share(holding.used_tokens, holding.pool_tokens),
            f"[{sources.index(holding.source) + 1}]" if holding.source else "-",
            Text(_WORDS[holding.status], STYLE[holding.status]),
        )
    yield rows
    for number, source in enumerate(sources, start=1):
        yield Text(f"  [{number}] {source}", "dim")


def _bars(
    holdings: Sequence[Holding], context: int | None, *, ascii_only: bool
) -> Iterator[RenderableType]:
    """How much of one full-length request each pool holds; a full bar holds all of it."""
    full, empty, unknown = ("#", "-", "?") if ascii_only else ("█", "░", "?")
    yield Text("\nPool against the promised context", "bold")
    drawn = (
        sorted(holdings, key=lambda h: _ratio(h, context)) if len(holdings) > MAX_BARS else holdings
    )
    for holding in drawn[:MAX_BARS]:
        rank = "" if holding.rank is None else f".{holding.rank}"
        line = Text(f"  {holding.worker + rank:<8}")
        if holding.pool_tokens is None or not context:
            line.append(unknown * BAR, "yellow")
            line.append("        ")
        else:
            filled = min(BAR, holding.pool_tokens * BAR // context)
            line.append(full * filled, STYLE[holding.status])
            line.append(empty * (BAR - filled), "dim")
            line.append(f"  {holding.pool_tokens * 100 // context:>4}% ")
        line.append(f" {holding.note}", STYLE[holding.status])
        line.append(f"  {holding.url[:MAX_NAME]}", "dim")
        yield line
    if len(holdings) > MAX_BARS:
        yield Text(f"  and {len(holdings) - MAX_BARS} more that hold as much or more", "dim")


def _ratio(holding: Holding, context: int | None) -> float:
    """Unknown pools come first: none of them is known to hold anything."""
    return -1.0 if holding.pool_tokens is None or not context else holding.pool_tokens / context


def _gpus(gpus: Sequence[Gpu]) -> Iterator[RenderableType]:
    if not gpus:
        return
    yield Text("\nGPUs", "bold")
    rows = table("host", ">index", "name", ">GiB", ">used", "from")
    for gpu in gpus:
        total = "unknown" if gpu.total_bytes is None else f"{gpu.total_bytes / GIB:,.1f}"
        used = _share(gpu.used_bytes, gpu.total_bytes)
        rows.add_row(f"  {gpu.host}", str(gpu.index), gpu.name or "-", total, used, gpu.source)
    yield rows


def _unknown(facts: Facts) -> Iterator[RenderableType]:
    """What could not be had, with the way to make it known: said once for all workers alike."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, worker in zip(facts.names, facts.workers, strict=True):
        for untold in worker.untold:
            alike[untold.figure, untold.remedy].append(name)
    if not alike and not facts.notes:
        return
    yield Text("\nUnknown", "bold")
    told = {remedy for _, remedy in alike}
    for note in facts.notes:
        if not any(
            note.endswith(f": {remedy}.") for remedy in told
        ):  # for each worker; below for all
            yield Text(f"  {note}", "yellow")
    for (figure, remedy), names in alike.items():
        yield Text(f"  {_FIGURES.get(figure, figure)} of {_listed(names)}: {remedy}")


def _advice(advice: Sequence[Advice]) -> Iterator[RenderableType]:
    if not advice:
        return
    yield Text("\nHardening (advice, fails nothing)", "bold")
    for one in advice:
        state = "off" if one.on is False else "cannot be seen"
        set_it = f": {one.flag}" if one.flag else " (this engine has no such switch)"
        yield Text(f"  {one.switch} {state} on {_listed(one.workers)}{set_it}")
        yield Text(f"    {one.why}", "dim")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_BARS])
    return shown if len(names) <= MAX_BARS else f"{shown} and {len(names) - MAX_BARS} more"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _share(part: int | None, whole: int | None) -> str:
    return "-" if part is None or not whole else f"{part / whole:.0%}"

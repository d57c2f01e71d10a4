"""The summary that a person reads: verdict first, then what it rests on, then what to do."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcanary.deployment.facts import Facts
from kvcanary.record.exchange import Purpose
from kvcanary.record.run import RunRecord
from kvcanary.record.separation import Separation
from kvcanary.record.series import Series
from kvcanary.report.printable import printable
from kvcanary.report.tables import print_table, table
from kvcanary.verdict.claims import Advice, Claim, Status, Stratum, Verdict
from kvcanary.verdict.findings import Finding, Severity

MAX_EVIDENCE = 6
UNKNOWN_WORKERS = (
    "which workers were met, and whether any restarted, is unknown: none was discovered"
)
ONE_KEY = (
    "mix-ups between API keys and accounts: not applicable, all was sent with one key at most "
    "(a deployment file may list several tenants)"
)
MAX_TEXT = 2_000
MAX_RANKS = 16
"""Ranks whose peak is printed."""
MAX_NAME = 200
"""Characters that are printed of any one text, and of a name."""
_STYLE = {Status.PASS: "bold green", Status.FAIL: "bold red", Status.INCONCLUSIVE: "bold yellow"}
_SEVERITY_STYLE = {
    Severity.LEAK: "bold red",
    Severity.CORRUPTION: "bold red",
    Severity.DEGRADED: "yellow",
}


def print_summary(console: Console, record: RunRecord, path: str | None) -> None:
    """Write the summary. ``path``: where the record lies, for the commands that use it."""
    write_parts(console, _parts(harmless(record), path))


def write_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Write tables so that no figure is cut, and sentences so that a pipe gets them whole."""
    for part in parts:
        if isinstance(part, Table):
            print_table(console, part)
        else:
            console.print(part, highlight=False, soft_wrap=isinstance(part, Text))


def _parts(record: RunRecord, path: str | None) -> Iterator[RenderableType]:
    info, verdict = record.info, record.verdict
    way = f"{info.api}, {'streaming' if info.stream else 'whole answers'}"
    yield Text(
        f"kvcanary {info.kvcanary_version}  {info.target[:MAX_NAME]}  {info.model[:MAX_NAME]} ({way})  "
        f"run {info.run:07x}"
    )
    if verdict is None:
        yield Text(f"\nThe run did not finish: {record.stopped or 'interrupted'}.", "bold yellow")
    else:
        yield Text("")
        yield headline_line(verdict)
        if record.stopped and verdict.headline != record.stopped:
            yield Text(f"The run did not finish: {record.stopped}.".replace("..", "."), "yellow")
    if record.facts:
        yield from _capacity(record.facts)
    if verdict:
        yield from _hardening(verdict.advice)
        yield from _claims(verdict.claims)
        if verdict.strata:
            yield from _strata(verdict.strata)
            yield from _meetings(verdict.strata, record)
        yield from _worth(record, verdict)
    for number, finding in enumerate(record.findings, start=1):
        yield from finding_lines(number, finding)
    yield from _closing(record, path)


def headline_line(verdict: Verdict) -> Text:
    """The verdict and its first reason."""
    text = Text()
    text.append(f" {verdict.status.value.upper()} ", _STYLE[verdict.status] + " reverse")
    text.append(f"  {verdict.headline}", "bold")
    return text


def _capacity(facts: Facts) -> Iterator[RenderableType]:
    yield Text("\nCapacity", "bold")
    context = "unknown" if facts.context_tokens is None else f"{facts.context_tokens:,} tokens"
    yield Text(f"  context limit {context} ({facts.context_source})")
    if facts.workers:
        rows = table("role", "worker", ">pool", ">accepts up to", ">page", "from")
        for worker in facts.workers:
            rows.add_row(
                f"  {worker.role.value}",
                worker.url,
                _number(worker.pool_tokens),
                _number(worker.limit_tokens),
                _number(worker.page_tokens),
                worker.source or "-",
            )
        yield rows
    window = facts.danger_window
    if window:
        yield Text(
            f"  danger window: {window.first_tokens:,} to {window.last_tokens:,} tokens "
            "(refused by prefill, taken by decode)",
            "yellow",
        )
    for note in facts.notes:
        yield Text(f"  {note}", "dim")


def _hardening(advice: Sequence[Advice]) -> Iterator[RenderableType]:
    """In one line what is off and can be set; the rest is for `kvcanary capacity`."""
    off = [f"{a.switch} ({a.flag})" for a in advice if a.on is False and a.flag]
    if off:
        yield Text(f"  advice: safety switches are off: {', '.join(off)}", "dim")


def _claims(claims: Sequence[Claim]) -> Iterator[RenderableType]:
    yield Text("\nClaims", "bold")
    rows = table("", "", "")
    rows.show_header = False
    for claim in claims:
        style = _STYLE[claim.status].removeprefix("bold ")
        loose = claim.status is Status.INCONCLUSIVE and not claim.required
        note = " (not required)" if loose else ""
        rows.add_row(f"  {claim.name.value}", Text(claim.status.value, style), claim.text + note)
    yield rows


def _strata(strata: Sequence[Stratum]) -> Iterator[RenderableType]:
    yield Text("\nAnswers", "bold")
    rows = table(
        "stratum", ">tokens", ">sent", ">refused", ">own", ">foreign", ">exposed", ">bad rate"
    )
    for stratum in strata:
        own = f"{stratum.measured - stratum.lost}/{stratum.measured}" if stratum.measured else "-"
        exposed = "-" if stratum.exposed_tokens is None else f"{stratum.exposed_tokens:,}"
        rows.add_row(
            f"  {stratum.name}",
            f"{stratum.longest_tokens:,}",
            str(stratum.sent),
            str(stratum.refused or "-"),
            own,
            str(stratum.foreign or "-"),
            ("~" if stratum.exposure == "estimated" else "") + exposed,
            "-" if stratum.bound is None else f"<{stratum.bound:.0%}",
        )
    yield rows


def _meetings(strata: Sequence[Stratum], record: RunRecord) -> Iterator[RenderableType]:
    """Who met whom: answers by stratum and pair of workers, and where the victims' pages lay."""
    met = [s for s in strata if s.pairs]
    if not met:
        return
    yield Text(
        "\nMeetings (answers that own their pages / answers, by prefill-decode pair)", "bold"
    )
    rows = table("stratum", *(f">{pair.pair}" for pair in met[0].pairs))
    for stratum in met:
        cells = [
            f"{p.measured - p.lost}/{p.measured}" if p.measured else "unmet" for p in stratum.pairs
        ]
        rows.add_row(f"  {stratum.name}", *cells)
    yield rows
    if record.high_water and record.high_water.decoders:
        yield Text(f"  victims' pages lay on {', '.join(record.high_water.decoders)}", "dim")


def _worth(record: RunRecord, verdict: Verdict) -> Iterator[RenderableType]:
    sent = [e for e in record.exchanges if e.outcome != "not_reached"]
    tokens = sum(e.length_tokens for e in sent)
    yield Text(
        f"  {len(record.exchanges)} requests, {tokens:,} prompt tokens; positive control: "
        f"{verdict.decoys_seen} of {verdict.decoys_sent} decoys recognised",
        "dim",
    )
    if record.series:
        yield Text(f"  most in use: {_peaks(record.series)}", "dim")
    notes = dict.fromkeys(s.exposure_note for s in verdict.strata if s.purpose == "reader")
    for note in filter(None, notes):
        yield Text(f"  exposure: {note}", "dim")
    if record.boundary:
        low, high = record.boundary.sound_tokens, record.boundary.lost_tokens
        sign = record.boundary.sign.value
        yield Text(f"  boundary: sound at {low:,} tokens, {sign} at {high:,}", "yellow")
    if record.plan:
        for skipped in record.plan.skipped:
            yield Text(f"  not tested: {skipped}", "yellow")
    yield from _separation(record.info.separation)
    if record.topology is None:
        yield Text(f"  {UNKNOWN_WORKERS}", "dim")
    bystanders = [e for e in record.exchanges if e.purpose is Purpose.BYSTANDER]
    if bystanders:
        right = sum(e.kept for e in bystanders)
        yield Text(f"  bystanders: {right} of {len(bystanders)} answers right", "dim")


def _peaks(series: Sequence[Series]) -> str:
    """The peak of each rank's pool, as far as the readings caught it."""
    by_rank: dict[str, Series] = {}  # a run that went on has two of each
    for rank in sorted(series, key=lambda rank: rank.peak_tokens or 0):
        by_rank[rank.worker] = rank
    ranks = [by_rank[name] for name in dict.fromkeys(rank.worker for rank in series)]
    shown = [f"{rank.worker} {_peak(rank)}" for rank in ranks[:MAX_RANKS]]
    more = len(ranks) - MAX_RANKS
    return ", ".join(shown) + (f" and {more} more in the record" if more > 0 else "")


def _peak(rank: Series) -> str:
    used, pool = rank.peak_tokens, rank.pool_tokens
    if used is None:
        return "unknown"
    return f"{used:,}" if pool is None else f"{used:,} of {pool:,} ({used / pool:.0%})"


def _separation(apart: Separation) -> Iterator[Text]:
    """As whom the run's tenants were sent, and what could not be tested for it."""
    if apart.identities > 1:
        counts = (
            (apart.keys, "API keys"),
            (apart.headers, "sets of headers"),
            (apart.salts, "cache salts"),
            (apart.users, "users"),
            (apart.models, "models"),
        )
        several = ", ".join(f"{count} {what}" for count, what in counts if count > 1)
        yield Text(f"  tenants were sent as {apart.identities} identities: {several}", "dim")
    if not apart.keys_differ:
        yield Text(f"  {ONE_KEY}", "dim")


def finding_lines(number: int, finding: Finding) -> Iterator[RenderableType]:
    """One finding with its evidence and what to do."""
    yield Text("")
    head = Text(f"F{number} ", "bold")
    head.append(finding.severity.value, _SEVERITY_STYLE.get(finding.severity, "magenta"))
    head.append(f"  {finding.title}", "bold")
    odds = "" if finding.odds is None else f"; odds of chance below {max(finding.odds, 1e-99):.0e}"
    head.append(f"  [{finding.rule}{odds}]", "dim")
    yield head
    if finding.waived:
        yield Padding(Text(f"waived {finding.waived}", "green"), (0, 0, 0, 3))
    for line in finding.evidence[:MAX_EVIDENCE]:
        yield Padding(Text(f"- {line}"), (0, 0, 0, 3))
    more = len(finding.evidence) - MAX_EVIDENCE
    if more > 0:
        yield Padding(Text(f"- and {more} more in the record", "dim"), (0, 0, 0, 3))
    yield Padding(Text(f"what to do: {finding.remedy}", "italic"), (0, 0, 0, 3))


def _closing(record: RunRecord, path: str | None) -> Iterator[RenderableType]:
    if path is None:
        return
    yield Text("")
    replayable = [n for n, f in enumerate(record.findings, start=1) if f.exchanges]
    if replayable:
        yield Text(f"replay  kvcanary replay {path} F{replayable[0]}")
    yield Text(f"record  {path}")


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def harmless(record: RunRecord) -> RunRecord:
    """The record with printable characters only: names and notes come from servers, records from anywhere."""
    told = _printable(record.model_dump(exclude={"exchanges"}))
    assert isinstance(told, dict)  # noqa: S101 - a model's dump
    return RunRecord.model_validate({**told, "exchanges": record.exchanges})


def _printable(value: object) -> object:
    if isinstance(value, str):
        if len(value) <= MAX_TEXT and value.isprintable():
            return value
        return printable(value[:MAX_TEXT])
    if isinstance(value, dict):
        return {key: _printable(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_printable(inner) for inner in value]
    return value

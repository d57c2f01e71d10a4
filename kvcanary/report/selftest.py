"""The selftest's matrix, for terminals and for documents."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from kvcanary.report.progress import counter
from kvcanary.report.tables import print_table, table
from kvcanary.selftest.case import Kind
from kvcanary.selftest.matrix import Detection, Result, Selftest, Unique

FACTS = "(no request)"
"""Where a finding names no exchange."""


@contextmanager
def case_progress(cases: int, *, quiet: bool) -> Iterator[Callable[[Result], None]]:
    """Takes each result as it comes, and shows on standard error how far it is."""
    with counter("cases", cases, quiet=quiet) as advance:
        yield lambda result: advance(f"{result.case.key}: {outcome(result)}")


def outcome(result: Result) -> str:
    """One case in a few words."""
    if result.wrong:
        return result.wrong.upper() if not result.error else f"ERROR {result.error}"
    if result.case.kind is Kind.LOOK_ALIKE:
        return "not accused"
    if not result.catching:
        return "blind"
    caught = "caught" if any(d.fails for d in result.catching) else "warned of"
    return f"{caught}, not by the suite" if result.besides else caught


def print_selftest(console: Console, whole: Selftest, *, explain: bool) -> None:
    """Faults, innocents, what is the only one of its kind, errors."""
    if whole.faults:
        rows = table("fault", ">hit", ">named", "outcome", "first", ">after", ">tokens", "besides")
        for result in whole.faults:
            rows.add_row(f"  {result.case.key}", *_fault_cells(result))
        print_table(console, rows)
    if whole.look_alikes:
        rows = table("look-alike", "outcome", ">exit", "warnings")
        for result in whole.look_alikes:
            rows.add_row(f"  {result.case.key}", *_innocent_cells(result))
        console.print()
        print_table(console, rows)
    if explain:
        _print_cells(console, whole.results)
    console.print()
    for line in footer(whole):
        console.print(Text(line), soft_wrap=True)
    for error in whole.errors:
        console.print(Text(f"error of kvcanary: {error}", "bold red"), soft_wrap=True)


def _fault_cells(result: Result) -> tuple[str, ...]:
    caught = result.catching
    rate = f"{result.named / result.hit:.0%}" if result.hit else "-"
    first, after, tokens = "", "", ""
    if caught:
        first = _cell(caught[0])
        after, tokens = f"{caught[0].seconds:.1f} s", f"{caught[0].prompt_tokens:,}"
    besides = dict.fromkeys(d.rule for d in caught if d.rule != (caught[0].rule if caught else ""))
    return (str(result.hit), rate, outcome(result), first, after, tokens, ", ".join(besides))


def _innocent_cells(result: Result) -> tuple[str, ...]:
    warned = dict.fromkeys(d.rule for d in result.detections if d not in result.accusations)
    code = "-" if result.exit_code is None else str(result.exit_code)
    return (outcome(result), code, ", ".join(warned))


def _cell(detection: Detection) -> str:
    return f"{detection.probe or FACTS} {detection.rule}"


def _print_cells(console: Console, results: Iterable[Result]) -> None:
    rows = table(
        "case", "probe", "rule", "severity", ">named", ">of hit", ">others", ">after", ">tokens"
    )
    for result in results:
        for d in sorted(result.detections, key=lambda d: d.seconds):
            rows.add_row(
                f"  {result.case.key}",
                d.probe or FACTS,
                d.rule,
                d.severity.value,
                str(d.named),
                str(d.hit),
                str(d.others),
                f"{d.seconds:.1f} s",
                f"{d.prompt_tokens:,}",
            )
    console.print()
    print_table(console, rows)


def footer(whole: Selftest) -> Iterator[str]:
    """What the matrix amounts to."""
    faults, innocent = whole.faults, whole.look_alikes
    caught = sum(bool(r.catching) for r in faults)
    blind = sum(bool(r.case.blind) and not r.catching for r in faults)
    by_others = sum(bool(r.catching and r.besides) for r in faults)
    accused = sum(bool(r.accusations) for r in innocent)
    terms = whole.terms
    yield (
        f"{caught} of {len(faults)} faults caught"
        + (f", {by_others} of them not by the suite itself" if by_others else "")
        + (f" ({blind} that no client can see)" if blind else "")
        + f", {accused} of {len(innocent)} look-alikes accused; suite {terms.suite}"
        + (f", probes {', '.join(terms.probes)} alone" if terms.probes else "")
        + (f", then {terms.besides}" if terms.besides and not terms.probes else "")
        + ("" if terms.to_the_end else ", each fault until a leak or corruption was proven")
        + f", context "
        f"{terms.context_tokens:,}, page {terms.page_tokens}, seed {terms.seed}; "
        f"{sum(r.cpu_seconds for r in whole.results):.0f} s of CPU"
        + ("" if whole.complete else "; interrupted before the end")
    )
    for what, items in (("rules", whole.rules), ("probes", whole.probes)):
        yield from _footer_of(what, items)


def _footer_of(what: str, items: Sequence[Unique]) -> Iterator[str]:
    only = [f"{item.name} ({', '.join(item.alone)})" for item in items if item.alone]
    if only:
        yield f"{what} that alone catch something: {'; '.join(only)}"
    others = [f"{item.name} ({item.catches})" for item in items if not item.alone]
    if others:
        yield f"{what} whose catches all have another, too: {', '.join(others)}"


def markdown(whole: Selftest) -> str:
    """The matrix as a part of a document."""
    lines: list[str] = []
    if whole.faults:
        lines += _markdown_table(
            ("fault", "hit", "named", "outcome", "first", "after", "tokens", "besides"),
            ((f"`{r.case.key}`", *_fault_cells(r)) for r in whole.faults),
        )
    if whole.look_alikes:
        lines += _markdown_table(
            ("look-alike", "what it looks like", "outcome", "exit", "warnings"),
            ((f"`{r.case.key}`", r.case.what, *_innocent_cells(r)) for r in whole.look_alikes),
        )
    lines += [f"- {line}" for line in footer(whole)]
    lines += [f"- error of kvcanary: {error}" for error in whole.errors]
    return "\n".join(lines)


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]

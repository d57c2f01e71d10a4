"""What a scan found, for people: the markers, where they stand and whose they are."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kvcanary.scan.result import FileScanned, Hit, ScanResult, Status
from kvcanary.scan.sighting import Kind
from kvcanary.verdict.claims import ExitCode

MAX_SHOWN = 200
"""Markers of each kind, and files, that are printed; JSON has all of them."""
_WORDS = {
    ExitCode.PASS: ("CLEAN", "bold green"),
    ExitCode.VIOLATION: ("FOUND", "bold red"),
    ExitCode.COULD_NOT_RUN: ("NOT ALL READ", "bold yellow"),
    ExitCode.INCONCLUSIVE: ("UNDECIDED", "bold yellow"),
    ExitCode.INTERRUPTED: ("INTERRUPTED", "bold yellow"),
}
_HEADS = {
    Status.FOUND: "Markers of this site",
    Status.UNDECIDED: "Undecided: too weak for so much text, or in a record that could not be read",
    Status.UNVERIFIED: "Unverified: another site's markers, or pasted; no evidence of anything",
}


def print_scan(console: Console, result: ScanResult) -> None:
    """Write the summary: verdict first."""
    for text in _parts(result):
        console.print(text, highlight=False, soft_wrap=True)


def _parts(result: ScanResult) -> Iterator[Text]:
    word, style = _WORDS[result.exit_code]
    yield Text.assemble((f" {word} ", style), f"  {_headline(result)}")
    for status, head in _HEADS.items():
        hits = result.having(status)
        if hits:
            yield Text(f"\n{head}", "bold")
            for hit in hits[:MAX_SHOWN]:
                yield from _hit(hit)
            yield from _more(len(hits), "markers")
    told = [f for f in result.files if f.error or f.note]
    if told:
        yield Text("\nFiles", "bold")
        for file in told[:MAX_SHOWN]:
            yield Text(f"  {file.name}: {'; '.join(filter(None, (file.error, file.note)))}")
        yield from _more(len(told), "files")
    yield Text(f"\n{_searched(result)}", "dim")
    if result.having(Status.FOUND):
        yield Text(
            "what to do: whose record each one stands in decides. In an answer to a canary's own request it "
            "belongs there; in anybody else's, pages of the request named were read by them: isolate the "
            "deployment, keep its logs."
        )


def _headline(result: ScanResult) -> str:
    found = result.having(Status.FOUND)
    if found:
        files = len({hit.file for hit in found})
        whole = sum(hit.kind is Kind.WHOLE for hit in found)
        parts = f" ({whole} whole, {len(found) - whole} in part)" if whole < len(found) else ""
        return f"{_count(len(found), 'marker')} of this site{parts} in {_count(files, 'file')}"
    return "no marker of this site in what was read"


def _hit(hit: Hit) -> Iterator[Text]:
    record = f"  record {hit.record_id}" if hit.record_id is not None else ""
    field = f"  {hit.field}" if hit.field else ""
    yield Text.assemble(
        "  ", (hit.marker, "bold"), f"  {hit.file}:{hit.offset}{record}{field}  {_what(hit)}"
    )
    if hit.request is not None:
        whose = f" as {hit.tenant}, `{hit.stratum}`" if hit.tenant else ""
        began = (hit.run_began or "").replace("T", " ").replace("Z", " UTC")
        yield Text(
            f"      run of {began} ({hit.run:07x}), request {hit.request}{whose}; "
            f"odds of chance {hit.odds:.0e}"
        )
    if hit.context is not None:
        yield Text(f"      {hit.context}")


def _what(hit: Hit) -> str:
    if hit.kind is Kind.PART:
        what = f"{hit.characters} of 16 characters"
    elif hit.kind is Kind.UNVERIFIED:
        what = "of another key"
    else:
        what = "whole, altered" if hit.altered else "whole"
    return what if hit.parsed else f"{what}, in a record that could not be read"


def _more(count: int, what: str) -> Iterator[Text]:
    if count > MAX_SHOWN:
        yield Text(f"  and {count - MAX_SHOWN:,} more {what}: -o json has all of them")


def _searched(result: ScanResult) -> str:
    counts = result.counts
    parts = [f"{_count(_read(result.files), 'file')}, {counts.text_bytes:,} bytes of text searched"]
    if counts.records:
        parts.append(_count(counts.records, "record"))
    if counts.unparsed:
        parts.append(f"{counts.unparsed:,} of them could not be read, and were searched as text")
    if counts.more:
        parts.append(f"{counts.more:,} more markers were seen and not kept")
    if result.planted_codes:
        parts.append(f"parts of {result.planted_codes:,} codes looked for")
    if result.by_chance:
        parts.append(f"{result.by_chance:,} short parts that chance explains")
    if not result.planted_codes:
        parts.append("whole markers only: parts need --record")
    return "; ".join(parts)


def _read(files: tuple[FileScanned, ...]) -> int:
    return sum(not file.error for file in files)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"

"""A scan in parts that can be done one by one on any core: which there are, and how one is done."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.canary.codes import CodeMaker
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.sitekey import SiteKey
from kvcanary.scan.records import Fields, scan_records
from kvcanary.scan.search import Searcher
from kvcanary.scan.sources import UNREADABLE, Form, Opened, Source, opened, why
from kvcanary.scan.tally import Tally
from kvcanary.scan.texts import scan_text
from kvcanary.scan.windows import LEAD_BYTES

QUICK_RANGE_BYTES = 64 << 20
THOROUGH_RANGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """What every part of a scan is done with."""

    site_key: SiteKey
    index: CodeIndex | None
    """Codes of which parts are looked for."""
    fields: Fields | None
    """None: text is searched as it stands."""
    context: int

    @property
    def range_bytes(self) -> int:
        return QUICK_RANGE_BYTES if self.index is None else THOROUGH_RANGE_BYTES

    def searcher(self) -> Searcher:
        return Searcher(CodeMaker(self.site_key), self.index)


@dataclass(frozen=True, slots=True)
class Range:
    """Part of a source: from ``begin`` to ``end`` of a plain file, or all of what is compressed or a stream."""

    source: Source
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a range, or of a piece of it."""

    part: Range
    tally: Tally
    error: str | None = None
    interrupted: bool = False
    complete: bool = False
    """Whether the range was searched to its end with this."""


def ranges(source: Source, begin: int, end: int, size: int) -> Iterator[Range]:
    """The parts of a source; of a plain file each has ``size`` bytes. None where there is nothing new."""
    if source.form is not Form.PLAIN:
        yield Range(source, begin, None)
        return
    for at in range(begin, end, size):
        yield Range(source, at, min(end, at + size))


def steps(task: Task, searcher: Searcher, part: Range) -> Iterator[Done]:
    """Do one range, told piece by piece; the last one says how it ended."""
    try:
        with opened(part.source) as source:
            try:
                for tally in _tallies(task, searcher, part, source):
                    yield Done(part, tally)
            except UNREADABLE:
                if not source.interrupted:
                    raise
            if source.interrupted:
                yield Done(part, Tally(), interrupted=True)
            elif part.end is not None and source.file.seek(0, 2) < part.end:
                yield Done(part, Tally(), error="it was cut while it was read")
            else:
                yield Done(part, Tally(), complete=True)
    except UNREADABLE as error:
        yield Done(part, Tally(), error=why(error))


def _tallies(task: Task, searcher: Searcher, part: Range, source: Opened) -> Iterator[Tally]:
    name, begin = part.source.name, part.begin
    if task.fields is not None:
        if part.end is not None:
            begin = _line_begin(source, begin)
            if begin >= part.end:
                return
        yield from scan_records(
            searcher,
            source.text,
            name,
            task.fields,
            offset=begin if part.end is not None else 0,
            after=part.begin,
            stop=part.end,
            context=task.context,
        )
        return
    offset = 0
    if part.end is not None:
        offset = max(0, begin - LEAD_BYTES)
        source.file.seek(offset)
    yield from scan_text(
        searcher,
        source.text,
        name,
        offset=offset,
        after=begin,
        stop=part.end,
        context=task.context,
    )


def _line_begin(source: Opened, at: int) -> int:
    """Where the first line begins at or after ``at``; the file stands there afterwards."""
    if at == 0:
        return 0
    at -= 1
    source.file.seek(at)
    while piece := source.file.read(1 << 16):
        newline = piece.find(b"\n")
        if newline >= 0:
            at += newline + 1
            break
        at += len(piece)
    source.file.seek(at)
    return at

"""A scan from its sources to what was seen, going on where an earlier one ended."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kvcanary.scan.ranges import Done, Range, Task, ranges, steps
from kvcanary.scan.result import FileScanned
from kvcanary.scan.sources import Form, Source, Unread, opened, why
from kvcanary.scan.state import Places
from kvcanary.scan.tally import Tally

WORTH_A_POOL = 4
"""Ranges from which on several processes are worth their start."""
SAVE_SECONDS = 5.0

Advance = Callable[[str, int], None]
"""Told which file was read and how many more bytes of text."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a scan has seen, file by file."""

    tally: Tally
    files: tuple[FileScanned, ...]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a source is taken up, and why there."""

    source: Source
    begin: int | None
    """Offset in its text; None where it has nothing new."""
    end: int
    note: str | None = None
    error: str | None = None


class _Account:
    """What is known so far. ``settled``: of ranges that are done, and that no later scan does again."""

    def __init__(self, starts: Sequence[_Start], unread: Sequence[Unread], tally: Tally) -> None:
        self.tally = self.settled = tally
        self._files = {
            s.source.name: FileScanned(name=s.source.name, note=s.note, error=s.error)
            for s in starts
        }
        self._files |= {u.name: FileScanned(name=u.name, error=u.why) for u in unread}
        self._current = Tally()

    @property
    def files(self) -> tuple[FileScanned, ...]:
        return tuple(self._files.values())

    def add(self, done: Done) -> FileScanned:
        """A piece of a range; the file it is of, as it stands now."""
        name = done.part.source.name
        file = self._files[name]
        self._files[name] = file.model_copy(
            update={
                "text_bytes": file.text_bytes + done.tally.counts.text_bytes,
                "error": file.error or done.error,
            }
        )
        self.tally = self.tally + done.tally
        self._current = self._current + done.tally
        return self._files[name]

    def settle(self) -> None:
        """The range that was added last is done."""
        self.settled, self._current = self.settled + self._current, Tally()

    def drop(self) -> None:
        """The range that was added last will be done again."""
        self._current = Tally()


def scan(
    task: Task,
    found: Sequence[Source | Unread],
    places: Places | None,
    jobs: int,
    advance: Advance,
) -> Seen:
    """Scan everything; Ctrl-C ends it with what was seen until then. Raises ConfigError for the state."""
    starts = [_start(task, s, places) for s in found if isinstance(s, Source)]
    unread = [s for s in found if isinstance(s, Unread)]
    account = _Account(starts, unread, places.pending if places else Tally())
    try:
        interrupted = _all(task, starts, places, jobs, account, advance)
    except KeyboardInterrupt:
        interrupted = True
    if places:
        places.save(account.settled if interrupted else Tally())
    return Seen(account.tally, account.files, interrupted)


def total_bytes(found: Sequence[Source | Unread]) -> int | None:
    """Bytes of text to search; None where that is not known: streams, and what is compressed."""
    sources = [s for s in found if isinstance(s, Source)]
    if any(s.form is not Form.PLAIN for s in sources):
        return None
    return sum(s.size for s in sources)


def _all(
    task: Task,
    starts: Sequence[_Start],
    places: Places | None,
    jobs: int,
    account: _Account,
    advance: Advance,
) -> bool:
    """Whether Ctrl-C ended it."""
    begins = {start.source: start.begin or 0 for start in starts}
    saved = time.monotonic()
    for done in _done(task, [p for s in starts for p in _parts(task, s)], jobs):
        file = account.add(done)
        advance(file.name, done.tally.counts.text_bytes)
        if done.interrupted:
            return True
        if done.complete and not file.error and done.part.source.form is not Form.STREAM:
            account.settle()
            if places:
                text = begins[done.part.source] + file.text_bytes
                _reached(places, done.part, text)
                if time.monotonic() - saved > SAVE_SECONDS:
                    places.save(account.settled)
                    saved = time.monotonic()
        elif done.complete or done.error:
            account.drop()
    return False


def _parts(task: Task, start: _Start) -> Iterator[Range]:
    if start.error is None and start.begin is not None:
        yield from ranges(start.source, start.begin, start.end, task.range_bytes)


def _done(task: Task, parts: Sequence[Range], jobs: int) -> Iterator[Done]:
    """What comes of each range, in order. Streams belong to the process that was asked."""
    stored = [p for p in parts if p.source.form is not Form.STREAM]
    if jobs > 1 and len(stored) >= WORTH_A_POOL:
        from kvcanary.scan.pool import in_order

        yield from in_order(task, stored, jobs)
        parts = [p for p in parts if p.source.form is Form.STREAM]
    if parts:
        searcher = task.searcher()
        for part in parts:
            yield from steps(task, searcher, part)


def _reached(places: Places, part: Range, text_bytes: int) -> None:
    """A file that is gone by now has no place any more."""
    with suppress(OSError):
        places.reached(part.source, part.source.size if part.end is None else part.end, text_bytes)


def _start(task: Task, source: Source, places: Places | None) -> _Start:
    """Where a source is taken up: at its beginning, or where an earlier scan ended."""
    if places is None or source.form is Form.STREAM:
        return _Start(source, 0, source.size)
    try:
        known = places.of(source)
        end = source.size
        if task.fields is not None and source.form is Form.PLAIN:
            end = _end_of_lines(source, known.stored_bytes if known else 0)
    except OSError as error:
        return _Start(source, 0, 0, error=why(error))
    left = source.size - end
    notes = [
        "it was cut or written anew, and is scanned from its beginning"
        if known is None and places.is_known(source)
        else "",
        f"its last {left:,} bytes are an unfinished record, left for the next scan" if left else "",
    ]
    note = "; ".join(filter(None, notes)) or None
    if known is None:
        return _Start(source, 0, end, note)
    if source.form is Form.PLAIN:
        return _Start(source, known.stored_bytes, end, note)
    return _Start(source, None if known.stored_bytes == end else known.text_bytes, end, note)


def _end_of_lines(source: Source, begin: int) -> int:
    """Where the last line that is ended ends, at least ``begin``. Raises OSError."""
    with opened(source) as file:
        end = source.size
        while end > begin:
            at = max(begin, end - _BACK_BYTES)
            file.file.seek(at)
            newline = file.file.read(end - at).rfind(b"\n")
            if newline >= 0:
                return at + newline + 1
            end = at
    return begin


_BACK_BYTES = 1 << 16

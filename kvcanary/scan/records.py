"""JSON Lines: one record a line, of which the selected fields are searched.

The bytes are looked at first, at full speed; only a line that may hold a marker is read as JSON. With
records given every line is, since part of a code may stand in any.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from kvcanary.errors import UsageError
from kvcanary.report.printable import escaped
from kvcanary.scan.search import Searcher
from kvcanary.scan.sighting import Sighting
from kvcanary.scan.tally import Counts, Tally, kept
from kvcanary.scan.texts import around, scan_text, sighting
from kvcanary.scan.windows import Reader

BLOCK_BYTES = 1 << 20
MAX_RECORD_BYTES = 16 << 20
"""A longer line is searched as text: whatever it holds is told as of a record that could not be read."""
MAX_ID_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class Path:
    """A JMESPath expression: ``choices[].message.content``. A leading point, as jq has it, is no matter."""

    text: str
    parsed: ParsedResult

    @classmethod
    def of(cls, text: str) -> "Path":
        """Raises UsageError when it is none."""
        try:
            return cls(text, jmespath.compile(text.removeprefix(".")))
        except JMESPathError:
            raise UsageError(
                f"`{text}` names no field: write it like `response.text` or `choices[].message.content`."
            ) from None

    def strings(self, document: object) -> str:
        """All the text at this path, lists and objects within it included, in order."""
        try:
            return "".join(_strings(self.parsed.search(document)))
        except JMESPathError:
            return ""

    def scalar(self, document: object) -> str | None:
        """The text or number at this path, cut and escaped; None where there is none."""
        try:
            value = self.parsed.search(document)
        except JMESPathError:
            return None
        if not isinstance(value, (str, int, float)):
            return None
        return escaped(str(value)[:MAX_ID_CHARACTERS])


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields are searched (none: the whole line as it stands), and which one tells a record's id."""

    paths: tuple[Path, ...]
    id_path: Path | None


@dataclass(frozen=True, slots=True)
class _Block:
    """Whole lines that begin at ``offset``; or the beginning of a line that is too long."""

    data: bytes
    offset: int
    too_long: bool


class _Blocks:
    """Cuts what is read into lines."""

    def __init__(self, reader: Reader, offset: int) -> None:
        self._reader = reader
        self._buffer = memoryview(bytearray(BLOCK_BYTES))
        self._rest = b""
        self._offset = offset

    def __iter__(self) -> Iterator[_Block]:
        while True:
            count = self._reader.readinto(self._buffer)
            chunk = bytes(self._buffer[: count or 0])
            cut = chunk.rfind(b"\n") + 1 if chunk else 0
            if chunk and not cut and len(self._rest) + len(chunk) <= MAX_RECORD_BYTES:
                self._rest += chunk
                continue
            too_long = bool(chunk) and not cut
            cut = len(chunk) if too_long else cut
            data, self._rest = self._rest + chunk[:cut], chunk[cut:]
            if data:
                yield _Block(data, self._offset, too_long)
            self._offset += len(data)
            if not chunk:
                return

    def line(self, begun: bytes) -> "_Line":
        """The line that begins with ``begun``, to be read to its end before the next block."""
        return _Line(self, begun)

    def more_of_line(self) -> bytes:
        """The next piece of a line, empty at its end."""
        chunk = self._rest
        if not chunk:
            count = self._reader.readinto(self._buffer)
            chunk = bytes(self._buffer[: count or 0])
        cut = chunk.find(b"\n") + 1 or len(chunk)
        self._rest = chunk[cut:]
        self._offset += cut
        return chunk[:cut]


class _Line:
    """Reads one line, however long."""

    def __init__(self, blocks: _Blocks, begun: bytes) -> None:
        self._blocks = blocks
        self._piece = begun
        self._ended = False

    def readinto(self, buffer: memoryview) -> int:
        if not self._piece and not self._ended:
            self._piece = self._blocks.more_of_line()
        self._ended = self._ended or not self._piece or self._piece.endswith(b"\n")
        piece, self._piece = self._piece[: len(buffer)], self._piece[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def scan_records(
    searcher: Searcher,
    reader: Reader,
    name: str,
    fields: Fields,
    *,
    offset: int = 0,
    after: int = 0,
    stop: int | None = None,
    context: int = 0,
) -> Iterator[Tally]:
    """Search the records that begin at ``after`` or later, before ``stop``; reading begins at ``offset``."""
    blocks = _Blocks(reader, offset)
    for block in blocks:
        if block.too_long:
            line = blocks.line(block.data)
            at = block.offset
            for tally in scan_text(
                searcher, line, name, offset=at, after=max(at, after), context=context
            ):
                unread = (s.model_copy(update={"parsed": False}) for s in tally.sightings)
                yield Tally(tuple(unread), tally.counts)
            yield Tally((), Counts(records=1, unparsed=1))
        else:
            yield _lines(searcher, _between(block, after, stop), name, fields, context)
        if stop is not None and block.offset + len(block.data) >= stop:
            return


def _between(block: _Block, after: int, stop: int | None) -> _Block:
    """The lines of a block that begin at ``after`` or later and before ``stop``."""
    data, begin, end = block.data, 0, len(block.data)
    if stop is not None and block.offset + end > stop:
        end = data.find(b"\n", max(0, stop - block.offset - 1)) + 1 or end
    if after > block.offset:
        begin = data.find(b"\n", after - block.offset - 1) + 1 or end
    return _Block(data[begin:end], block.offset + begin, block.too_long)


def _lines(searcher: Searcher, block: _Block, name: str, fields: Fields, context: int) -> Tally:
    data = block.data
    lines = data.split(b"\n")
    ends = list(accumulate(len(line) + 1 for line in lines))
    if searcher.thorough:
        wanted: list[int] = list(range(len(lines)))
    else:
        wanted = sorted({bisect_left(ends, end) for end in searcher.anchors(memoryview(data))})
    tally: list[Sighting] = []
    unparsed = 0
    for number in wanted:
        at = block.offset + ends[number] - len(lines[number]) - 1
        if lines[number].strip():
            seen, parsed = _record(searcher, lines[number], at, name, fields, context)
            tally += seen
            unparsed += not parsed
    records = sum(map(bool, lines))
    counts = Counts(text_bytes=len(data), records=records, unparsed=unparsed)
    return kept(tuple(tally), counts + searcher.take_counts())


def _record(
    searcher: Searcher, line: bytes, at: int, name: str, fields: Fields, context: int
) -> tuple[list[Sighting], bool]:
    """What a line holds, and whether it could be read."""
    document, parsed = _document(line)
    record_id = fields.id_path.scalar(document) if fields.id_path and parsed else None
    texts: list[tuple[str | None, bytes]] = [(None, line)]
    if fields.paths and parsed:
        texts = [
            (path.text, path.strings(document).encode("utf-8", "replace")) for path in fields.paths
        ]
    seen = []
    for field, text in texts:
        for found in searcher.found(text, searcher.anchors(text)):
            one = sighting(found, name, at if field else at + found.begin)
            update = {
                "record_id": record_id,
                "field": field,
                "parsed": parsed,
                "context": around(text, found, context),
            }
            seen.append(one.model_copy(update=update))
    return seen, parsed


def _document(line: bytes) -> tuple[object, bool]:
    """A line as JSON; a server-sent event is one, too."""
    try:
        return json.loads(line.strip().removeprefix(b"data:")), True
    except (ValueError, RecursionError):
        return None, False


def _strings(value: object) -> Iterator[str]:
    """The text in a value. Its depth is bounded by what the JSON parser takes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)

"""A server-sent-events parser with bounds.

Why not ``httpx-sse``: it reads lines through httpx's line decoder, which keeps a line of any
length in memory, and a server under test may send one that never ends. It also drops llama.cpp's
``error:`` lines. The rules are those of the WHATWG HTML standard, section 9.2.6: any of CR, LF,
CRLF ends a line, a BOM may come first, a line that starts with a colon is a comment, and one
space after the field's colon is not part of the value.

Two deliberate differences, since an event that was cut off may hold the text that matters:
`SseParser.close` hands out what an unfinished stream left over, and an ``error`` field (sent by
llama.cpp until 2025) counts as an event named "error".
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_EVENT_BYTES = 1_000_000
_BOM = b"\xef\xbb\xbf"


class EventTooLongError(Exception):
    """A line or an event went over the bound; the parser is of no further use."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event.

    Attributes:
        name: the ``event`` field, "" without one.
        data: the ``data`` fields joined by line feeds; bytes that are no UTF-8 are replaced.
        complete: False where the stream ended before the empty line that closes an event.
    """

    name: str
    data: str = field(repr=False)
    complete: bool = True


class SseParser:
    """Bytes in, events out; chunk boundaries may fall anywhere.

    Args:
        max_event_bytes: the most that is kept of one unfinished event.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._data: list[str] = []
        self._data_bytes = 0
        self._name = ""
        self._first_line = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """The events that `chunk` completes.

        Raises:
            EventTooLongError: an event or a line is longer than the bound.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF
        for part in chunk.splitlines(keepends=True):  # on bytes: CR, LF and CRLF only
            self._line += part
            self._check_size()
            if part.endswith((b"\n", b"\r")):
                self._after_cr = part.endswith(b"\r")
                event = self._take_line()
                if event is not None:
                    yield event
        # Only a CR at the very end of a chunk can be half of a CRLF.
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr

    def close(self) -> SseEvent | None:
        """What an event cut off by the end of the stream left over, if anything."""
        if self._line:
            self._take_line()
        event = self._dispatch()
        return None if event is None else SseEvent(event.name, event.data, complete=False)

    def _check_size(self) -> None:
        if len(self._line) + self._data_bytes > self._max_event_bytes:
            self._line.clear()
            self._data.clear()
            raise EventTooLongError

    def _take_line(self) -> SseEvent | None:
        line = bytes(self._line).rstrip(b"\r\n")
        self._line.clear()
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name in {b"data", b"error"}:
            self._data.append(value.decode("utf-8", "replace"))
            self._data_bytes += len(value) + 1
            if name == b"error":
                self._name = "error"
        return None

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._name
        self._data, self._name, self._data_bytes = [], "", 0
        return SseEvent(name, "\n".join(data)) if data else None

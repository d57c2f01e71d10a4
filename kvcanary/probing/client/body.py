"""The body of one response: what it is, and its bytes on their way to the answer, within bounds."""

from dataclasses import dataclass

from kvcanary.probing.answer import MAX_TEXT_CHARS
from kvcanary.probing.outcome import BodyKind, Ending, Seen
from kvcanary.probing.refusal import error_from_text
from kvcanary.probing.sse import MAX_EVENT_BYTES, EventTooLongError, SseParser


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds on what is read of one response."""

    response_bytes: int = 8_000_000
    text_chars: int = MAX_TEXT_CHARS
    event_bytes: int = MAX_EVENT_BYTES


class BodyReader:
    """Feeds the bytes of one response to its answer, and stops where no more is of use.

    Attributes:
        ending: why reading stopped early; None while it goes on.
    """

    def __init__(self, seen: Seen, content_type: str, limits: ReadLimits) -> None:
        self._seen = seen
        self._content_type = content_type.partition(";")[0].strip().lower()
        self._limits = limits
        self._read_bytes = 0
        self._kept = bytearray()
        self._sse = SseParser(limits.event_bytes)
        self.ending: Ending | None = None

    def feed(self, chunk: bytes) -> bool:
        """Take some bytes; True if they carried text of a stream."""
        self._read_bytes += len(chunk)
        if self._read_bytes > self._limits.response_bytes:
            self.ending = Ending.TOO_LARGE
            return False
        if self._seen.kind is BodyKind.EMPTY:
            # blank lines may come first, to keep a connection alive
            chunk = chunk.lstrip(b" \t\r\n")
            if not chunk:
                return False
            self._seen.kind = kind_of(self._content_type, chunk)
        match self._seen.kind:
            case BodyKind.SSE:
                return self._feed_sse(chunk)
            case BodyKind.JSON:
                self._kept += chunk
            case BodyKind.TEXT if (self._seen.status or 0) >= 400:
                self._kept += chunk
            case _:
                self.ending = Ending.STOPPED
        return False

    def _feed_sse(self, chunk: bytes) -> bool:
        answer, carried = self._seen.answer, False
        try:
            for event in self._sse.feed(chunk):
                carried = answer.add_event(event.data, name=event.name) or carried
        except EventTooLongError:
            self.ending = Ending.TOO_LARGE
        if answer.is_full:
            self.ending = Ending.TOO_LARGE
        return carried

    def close(self, *, complete: bool) -> bool:
        """Take what is left over; True if it carried text of a stream."""
        answer = self._seen.answer
        kept, self._kept = bytes(self._kept), bytearray()
        if self._seen.kind is BodyKind.SSE:
            event = self._sse.close()
            return event is not None and answer.add_event(
                event.data, name=event.name, complete=event.complete
            )
        if self._seen.kind is BodyKind.JSON:
            answer.add_body(kept, complete=complete)
        elif self._seen.kind is BodyKind.TEXT and kept:
            answer.error = error_from_text(kept.decode("utf-8", "replace"))
        return False


_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")


def kind_of(content_type: str, start: bytes) -> BodyKind:
    """What a body is, from its declared type and its first bytes.

    The bytes come first where they are plain: gateways label streams as JSON and error pages as
    anything.
    """
    start = start.removeprefix(b"\xef\xbb\xbf")
    if start.startswith((b"{", b"[")):
        return BodyKind.JSON
    if start.startswith(b"<") or content_type == "text/html":
        return BodyKind.HTML
    if start.startswith(_SSE_STARTS) or content_type == "text/event-stream":
        return BodyKind.SSE
    if b"\0" in start[:1024]:
        return BodyKind.OTHER
    return BodyKind.TEXT if content_type in {"text/plain", ""} else BodyKind.OTHER

"""One exchange: a request on its way, what is seen of its response, and when."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import httpx

from kvcanary.probing.answer import Answer
from kvcanary.probing.client.body import BodyReader, ReadLimits
from kvcanary.probing.client.transport import transport_reason
from kvcanary.probing.endpoint import Body, Endpoint, Piece, Request, body_of
from kvcanary.probing.outcome import BodyKind, Ending, Reply, Seen, judge
from kvcanary.probing.server_text import ServerText

SILENT_PART = 0.25
"""Part of an exchange's time: no text for so long at its end, and it was not being answered any more."""


class Exchange:
    """One request on its way: what was seen, and when."""

    def __init__(
        self,
        endpoint: Endpoint,
        request: Request,
        limits: ReadLimits,
        on_first_token: Callable[[], None] | None,
        trailing_seconds: float,
    ) -> None:
        self._endpoint = endpoint
        self._request = request
        self._limits = limits
        self._on_first_token = on_first_token
        self._trailing_seconds = trailing_seconds
        self._stream = endpoint.stream and not request.whole
        self.seen = Seen(Answer(limits.text_chars), stream_asked=self._stream)
        self.start()
        self._sent_at: float | None = None
        self._first_token_at: float | None = None
        self._last_text_at: float | None = None
        self._ended_at: float | None = None

    def start(self) -> None:
        """Start the clocks; waiting for a slot is no part of the exchange."""
        self._started_at = time.time()
        self._began_at = time.monotonic()

    def end(self, ending: Ending) -> None:
        """The exchange is over; the first end counts."""
        self.seen.ending = ending
        self._mark_end()
        silent = _between(self._last_text_at, self._ended_at)
        total = _between(self._began_at, self._ended_at) or 0.0
        self.seen.answering = silent is not None and silent < SILENT_PART * total

    async def run(self, http: httpx.AsyncClient, auth: httpx.Auth, connect_seconds: float) -> None:
        """Send, read, and note what is seen."""
        body = body_of(self._endpoint, self._request)
        request = http.build_request(
            "POST",
            self._endpoint.completion_url,
            headers={
                "Content-Type": "application/json",
                "Content-Length": str(body.size_bytes),
                "Accept": "text/event-stream" if self._stream else "application/json",
                "Cache-Control": "no-cache",
                **dict(self._request.headers),
                "X-Request-Id": self._request.name,
            },
            # A deadline of httpx's own: it closes a socket whose TLS handshake is given up, which
            # a cancellation leaves open.
            timeout=httpx.Timeout(None, connect=connect_seconds),
        )
        request.stream = _PieceStream(body, self._note_begin, self._note_sent)
        try:
            response = await http.send(request, auth=auth, stream=True)
        except httpx.TransportError as error:
            sending = self.seen.body_begun and self._sent_at is None
            self.seen.transport_reason = transport_reason(error, sending=sending)
            self.end(Ending.NO_RESPONSE)
            return
        try:
            await self._read(response)
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response) -> None:
        self.seen.status = response.status_code
        reader = BodyReader(self.seen, response.headers.get("content-type", ""), self._limits)
        chunks = response.aiter_raw()
        try:
            async for chunk in chunks:
                carried_text = reader.feed(chunk)
                if carried_text:
                    self._note_text()
                if reader.ending is not None:
                    break
                if self.seen.answer.done and self._ended_at is None:
                    self._mark_end()
                    await _read_rest(chunks, reader, self._trailing_seconds)
                    break
            self.end(reader.ending or Ending.COMPLETE)
        except httpx.TransportError:
            self.end(Ending.BROKEN)
        finally:
            # also when the deadline or a release ends it
            if reader.close(complete=self.seen.ending is Ending.COMPLETE):
                self._note_text()

    def _note_begin(self) -> None:
        self.seen.body_begun = True

    def _note_sent(self) -> None:
        self._sent_at = time.monotonic()

    def _note_text(self) -> None:
        if self.seen.kind is not BodyKind.SSE:
            return
        self._last_text_at = time.monotonic()
        if self._first_token_at is None:
            self._first_token_at = self._last_text_at
            if self._on_first_token is not None:
                self._on_first_token()

    def _mark_end(self) -> None:
        if self._ended_at is None:
            self._ended_at = time.monotonic()

    def reply(self) -> Reply:
        """What became of it."""
        self._mark_end()
        judgement, answer = judge(self.seen), self.seen.answer
        return Reply(
            name=self._request.name,
            outcome=judgement.outcome,
            reason=judgement.reason,
            refusal=judgement.refusal,
            status=self.seen.status,
            content=ServerText(answer.content.joined()),
            reasoning=ServerText(answer.reasoning.joined()),
            other_text=ServerText(answer.other_text()),
            finish_reason=answer.finish_reason,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cached_tokens=answer.cached_tokens,
            streamed_chunks=answer.chunks,
            started_at=self._started_at,
            send_seconds=_between(self._began_at, self._sent_at),
            first_token_seconds=_between(self._sent_at, self._first_token_at),
            first_token_from_start_seconds=_between(self._began_at, self._first_token_at),
            total_seconds=_between(self._began_at, self._ended_at) or 0.0,
            mixed=answer.mixed,
            stray_ids=answer.stray_ids,
            response_id=answer.response_id,
            model=answer.model,
            system_fingerprint=answer.system_fingerprint,
        )


class _PieceStream(httpx.AsyncByteStream):
    """A body as httpx sends it: the next piece is built when the last one is on its way.

    A class and no async generator: one that is dropped half way needs no finalizer.
    """

    def __init__(self, body: Body, on_begin: Callable[[], None], on_end: Callable[[], None]):
        self._pieces = body.pieces()
        self._on_begin: Callable[[], None] | None = on_begin
        self._on_end = on_end

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> Piece:
        if self._on_begin is not None:
            self._on_begin()
            self._on_begin = None
        for piece in self._pieces:
            return piece
        self._on_end()
        raise StopAsyncIteration


async def _read_rest(chunks: AsyncIterator[bytes], reader: BodyReader, most_seconds: float) -> None:
    """Read what follows a ``[DONE]``, for a moment; the answer is over, so no fault counts."""
    with suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(most_seconds):
            async for chunk in chunks:
                reader.feed(chunk)
                if reader.ending is not None:
                    return


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)

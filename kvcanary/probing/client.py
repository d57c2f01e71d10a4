"""The HTTP client: one request out, one `Reply` back, whatever the server does.

Rules: a deadline over everything, bounds on everything that is read, no redirects, no cookies
(one tenant's session must not steer another's), no compression (a small bomb would be large), no
proxy that the user did not ask for, the key only where it is due. `Client.send` raises for
nothing that a server does; `asyncio.CancelledError` passes through, and so does a fault of our
own, without the frames of the HTTP libraries, whose locals hold the key.
"""

import asyncio
import json
import socket
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Self

import httpx

from kvcanary.errors import ConfigError, UsageError
from kvcanary.probing.answer import MAX_TEXT_CHARS, Answer
from kvcanary.probing.endpoint import Body, Endpoint, Piece, Request, body_of, normalised_url
from kvcanary.probing.outcome import BodyKind, Ending, Reason, Reply, Seen, judge
from kvcanary.probing.refusal import error_from_text
from kvcanary.probing.sse import MAX_EVENT_BYTES, EventTooLongError, SseParser

CONNECT_SECONDS = 15.0
"""The longest that making a connection may take, inside the deadline."""

TRAILING_SECONDS = 1.0
"""How long the rest of a response may take after its ``[DONE]``, to keep the connection."""

IDLE_CONNECTION_SECONDS = 2.0
"""Idle connections are dropped well before servers do it (uvicorn: 5 s), or a request would now
and then meet a connection that is just being closed and look as if it had been reset."""

_METADATA_CONNECTIONS = 4
_SOCKET_OPTIONS: list[tuple[int, int, int]] = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
# Load balancers forget a silent connection after some minutes, which a prefill can take.
for _option, _seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15)):
    if hasattr(socket, _option):
        _SOCKET_OPTIONS.append((socket.IPPROTO_TCP, getattr(socket, _option), _seconds))


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds on what is read of one response."""

    response_bytes: int = 8_000_000
    text_chars: int = MAX_TEXT_CHARS
    event_bytes: int = MAX_EVENT_BYTES


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A metadata document.

    Attributes:
        value: the parsed JSON, None if there is none; other people's data, so in no ``repr``.
        reason: why there is no value; None if there is one.
    """

    status: int | None
    value: object = field(default=None, repr=False)
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class TextReply:
    """A metadata document that is plain text.

    Attributes:
        text: other people's data, so in no ``repr``; None if there is none. What is no UTF-8 is
            replaced.
        reason: why there is no text; None if there is some.
    """

    status: int | None
    text: str | None = field(default=None, repr=False)
    reason: Reason | None = None


class Client:
    """Sends requests to one endpoint; an async context manager.

    Args:
        concurrency: the most requests in flight; a further `send` waits, within its deadline.

    Raises:
        UsageError: the URL's host is none, or the concurrency is below 1.
        ConfigError: the endpoint's `ca_file` cannot be used.
    """

    def __init__(
        self, endpoint: Endpoint, *, concurrency: int = 8, limits: ReadLimits | None = None
    ) -> None:
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; it has to be at least 1.")
        self.endpoint = endpoint
        self._limits = limits or ReadLimits()
        self._slots = asyncio.Semaphore(concurrency)
        self._auth = _EndpointAuth(endpoint)
        try:
            httpx.URL(endpoint.completion_url)
        except httpx.InvalidURL:
            raise UsageError(
                "The URL's host is no valid host name. Give http(s)://HOST[:PORT]/v1."
            ) from None
        self._http = _http_client(endpoint, concurrency + _METADATA_CONNECTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(
        self,
        request: Request,
        *,
        deadline_seconds: float,
        on_first_token: Callable[[], None] | None = None,
        release: asyncio.Event | None = None,
    ) -> Reply:
        """Send `request` and read the response to its end.

        Args:
            deadline_seconds: over everything: waiting for a slot, connecting, sending, reading.
            on_first_token: called once, when the first event with text was read (never without
                a stream).
            release: when set, the exchange is dropped, and its outcome is "aborted" unless it
                was over by then.

        Raises:
            ValueError: the prompt text's pieces do not add up to its declared size.
        """
        exchange = _Exchange(self.endpoint, request, self._limits, on_first_token)
        with _WithoutLibraryFrames():
            try:
                async with (
                    asyncio.timeout(deadline_seconds) as deadline,
                    _released_by(release) as held,
                    self._slots,
                ):
                    exchange.seen.has_slot = True
                    exchange.start()
                    connect_seconds = min(CONNECT_SECONDS, 0.9 * deadline_seconds)
                    await exchange.run(self._http, self._auth, connect_seconds)
            except TimeoutError:
                expired = held.expired() and not deadline.expired()
                exchange.end(Ending.RELEASED if expired else Ending.DEADLINE)
        return exchange.reply()

    async def get_json(
        self,
        url: str,
        *,
        deadline_seconds: float = 5.0,
        max_bytes: int = 4_000_000,
        with_key: bool,
    ) -> JsonReply:
        """Fetch a metadata document, within a deadline and a size.

        Args:
            with_key: send the endpoint's key and extra headers. Only for the endpoint itself and
                for URLs that the user listed or trusts.

        A URL that is none, as a server's list of workers may hold, gives a reason and no error.
        """
        got = await self._get(url, "application/json", deadline_seconds, max_bytes, with_key)
        if got.reason is not None:
            return JsonReply(got.status, reason=got.reason)
        try:
            return JsonReply(got.status, json.loads(got.body))
        except (ValueError, RecursionError):
            return JsonReply(got.status, reason=Reason.HTML if got.is_html else Reason.NOT_JSON)

    async def get_text(
        self,
        url: str,
        *,
        deadline_seconds: float = 5.0,
        max_bytes: int = 4_000_000,
        with_key: bool,
    ) -> TextReply:
        """Fetch a plain text, such as a server's metrics; as `get_json` otherwise."""
        got = await self._get(url, "text/plain", deadline_seconds, max_bytes, with_key)
        if got.reason is None and got.is_html:
            return TextReply(got.status, reason=Reason.HTML)
        text = got.body.decode("utf-8", "replace") if got.reason is None else None
        return TextReply(got.status, text, got.reason)

    async def _get(
        self, url: str, accept: str, deadline_seconds: float, max_bytes: int, with_key: bool
    ) -> "_Document":
        path, _, query = url.partition("?")  # a query is ours here: /v1/loads?include=core
        auth = self._auth if with_key else None
        with _WithoutLibraryFrames():
            try:
                url = normalised_url(path) + (f"?{query}" if query else "")
                async with asyncio.timeout(deadline_seconds):
                    return await _fetch(self._http, url, accept, auth, max_bytes)
            except (UsageError, httpx.InvalidURL):
                return _Document(None, reason=Reason.NOT_A_URL)
            except TimeoutError:
                return _Document(None, reason=Reason.DEADLINE)
            except httpx.TransportError as error:
                return _Document(None, reason=_transport_reason(error, sending=False))

    def __repr__(self) -> str:
        return f"Client({self.endpoint!r})"


class _EndpointAuth(httpx.Auth):
    """Adds key and extra headers at the last moment, so that no variable of ours holds them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        if self._endpoint.api_key is not None:
            request.headers["Authorization"] = f"Bearer {self._endpoint.api_key.reveal()}"
        request.headers.update(self._endpoint.headers)
        yield request


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


class _Exchange:
    """One request on its way: what was seen, and when."""

    def __init__(
        self,
        endpoint: Endpoint,
        request: Request,
        limits: ReadLimits,
        on_first_token: Callable[[], None] | None,
    ) -> None:
        self._endpoint = endpoint
        self._request = request
        self._limits = limits
        self._on_first_token = on_first_token
        self.seen = Seen(Answer(limits.text_chars), stream_asked=endpoint.stream)
        self.start()
        self._sent_at: float | None = None
        self._first_token_at: float | None = None
        self._ended_at: float | None = None

    def start(self) -> None:
        """Start the clocks; waiting for a slot is no part of the exchange."""
        self._started_at = time.time()
        self._began_at = time.monotonic()

    def end(self, ending: Ending) -> None:
        """The exchange is over; the first end counts."""
        self.seen.ending = ending
        self._mark_end()

    async def run(self, http: httpx.AsyncClient, auth: httpx.Auth, connect_seconds: float) -> None:
        """Send, read, and note what is seen."""
        body = body_of(self._endpoint, self._request)
        request = http.build_request(
            "POST",
            self._endpoint.completion_url,
            headers={
                "Content-Type": "application/json",
                "Content-Length": str(body.size_bytes),
                "Accept": "text/event-stream" if self._endpoint.stream else "application/json",
                "Cache-Control": "no-cache",
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
            self.seen.transport_reason = _transport_reason(error, sending=sending)
            self.end(Ending.NO_RESPONSE)
            return
        try:
            await self._read(response)
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response) -> None:
        self.seen.status = response.status_code
        reader = _BodyReader(self.seen, response.headers.get("content-type", ""), self._limits)
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
                    await _read_rest(chunks, reader)
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
        if self._first_token_at is None and self.seen.kind is BodyKind.SSE:
            self._first_token_at = time.monotonic()
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
            content=answer.content.joined(),
            reasoning=answer.reasoning.joined(),
            other_text=answer.other_text(),
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
            response_id=answer.response_id,
            model=answer.model,
            system_fingerprint=answer.system_fingerprint,
        )


class _BodyReader:
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
            self._seen.kind = _kind_of(self._content_type, chunk)
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


async def _read_rest(chunks: AsyncIterator[bytes], reader: _BodyReader) -> None:
    """Read what follows a ``[DONE]``, for a moment; the answer is over, so no fault counts."""
    with suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(TRAILING_SECONDS):
            async for chunk in chunks:
                reader.feed(chunk)
                if reader.ending is not None:
                    return


@dataclass(frozen=True, slots=True)
class _Document:
    """The bytes of a metadata document, or why there are none."""

    status: int | None
    body: bytes = field(default=b"", repr=False)
    reason: Reason | None = None

    @property
    def is_html(self) -> bool:
        return _kind_of("", self.body[:4096].lstrip()) is BodyKind.HTML


async def _fetch(
    http: httpx.AsyncClient, url: str, accept: str, auth: httpx.Auth | None, max_bytes: int
) -> _Document:
    body = bytearray()
    async with http.stream("GET", url, auth=auth, headers={"Accept": accept}) as got:
        status = got.status_code
        if 300 <= status < 400:
            return _Document(status, reason=Reason.REDIRECT)
        async for chunk in got.aiter_raw():
            body += chunk
            if len(body) > max_bytes:
                return _Document(status, reason=Reason.TOO_LARGE)
    if status in {401, 403}:
        return _Document(status, reason=Reason.UNAUTHORIZED)
    if status in {404, 405, 501}:
        return _Document(status, reason=Reason.PATH_NOT_FOUND)
    if status >= 400:
        return _Document(
            status, reason=Reason.CLIENT_ERROR if status < 500 else Reason.SERVER_ERROR
        )
    if not body.strip():
        return _Document(status, reason=Reason.EMPTY_BODY)
    return _Document(status, bytes(body))


_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")


def _kind_of(content_type: str, start: bytes) -> BodyKind:
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


def _http_client(endpoint: Endpoint, connections: int) -> httpx.AsyncClient:
    context = _tls_context(endpoint.ca_file)
    pool = httpx.Limits(
        max_connections=connections,
        max_keepalive_connections=connections,
        keepalive_expiry=IDLE_CONNECTION_SECONDS,
    )

    def transport(proxy: str | None = None) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(
            verify=context,
            http1=True,
            http2=False,
            limits=pool,
            proxy=proxy,
            trust_env=False,
            socket_options=_SOCKET_OPTIONS,
        )

    proxies = urllib.request.getproxies() if endpoint.trust_env else {}
    mounts = {
        f"{scheme}://": _Proxied(transport(proxies[scheme]), transport())
        for scheme in ("http", "https")
        if scheme in proxies
    }
    no_cookies = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(
        transport=transport(),
        mounts=mounts,
        cookies=no_cookies,
        headers={"Accept-Encoding": "identity", "User-Agent": "kvcanary"},
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


class _Proxied(httpx.AsyncBaseTransport):
    """The environment's proxy, and past it for the hosts of NO_PROXY."""

    def __init__(self, proxied: httpx.AsyncHTTPTransport, direct: httpx.AsyncHTTPTransport) -> None:
        self._proxied = proxied
        self._direct = direct

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        past_it = urllib.request.proxy_bypass(request.url.host)
        transport = self._direct if past_it else self._proxied
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._proxied.aclose()
        await self._direct.aclose()


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Checks certificates against the public authorities, or only against `ca_file`.

    Raises:
        ConfigError: the file is missing, unreadable or no PEM.
    """
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        what = "no certificates in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"The file of certificate authorities {ca_file!r} could not be used: {what}. "
            "Give a readable PEM file."
        ) from None


@asynccontextmanager
async def _released_by(release: asyncio.Event | None) -> AsyncIterator[asyncio.Timeout]:
    """A timeout that expires when `release` is set, and never without one."""
    async with asyncio.timeout(None) as held:
        if release is None:
            yield held
            return

        async def watch(event: asyncio.Event) -> None:
            await event.wait()
            held.reschedule(asyncio.get_running_loop().time())

        watcher = asyncio.create_task(watch(release))
        try:
            yield held
        finally:
            watcher.cancel()


_CONNECT_REASONS = (
    (ssl.SSLError, Reason.TLS),
    (socket.gaierror, Reason.UNKNOWN_HOST),
    (ConnectionRefusedError, Reason.CONNECTION_REFUSED),
)


def _transport_reason(error: httpx.TransportError, *, sending: bool) -> Reason:
    """Why there was no response."""
    causes = tuple(_causes(error))
    if isinstance(error, httpx.ConnectTimeout):
        return Reason.CONNECT_TIMEOUT
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        # Later on an SSLError may only mean that the connection was dropped without a goodbye.
        for kind, reason in _CONNECT_REASONS:
            if any(isinstance(cause, kind) for cause in causes):
                return reason
        return Reason.UNREACHABLE
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
        return Reason.UNREACHABLE
    if isinstance(error, httpx.RemoteProtocolError) and len(causes) > 2:
        # httpx and httpcore each raise from what they caught. A third one is the HTTP parser's
        # complaint; without it the server closed the connection and sent nothing.
        return Reason.NOT_HTTP
    return Reason.CLOSED_WHILE_SENDING if sending else Reason.IDLE_RESET


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """`error`, what it was raised from, and the members of groups among them."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__


class _WithoutLibraryFrames:
    """Drops the HTTP libraries' frames from what is raised: their locals hold request headers.

    An exception of our own, or a cancellation, may pass through them; a traceback with locals
    (``pytest --showlocals``, rich, error trackers) would print the key. No generator-based
    context manager: contextlib puts the old traceback back.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        for part in _causes(error):
            part.__traceback__ = _own_frames(part.__traceback__)


_LIBRARIES = ("httpx", "httpcore", "h11", "anyio")


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _LIBRARIES:
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)

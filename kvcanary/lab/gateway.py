"""What stands before the router: a proxy with its limits, an API gateway with its own ideas."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvcanary.lab.chances import Chances, FaultKey
from kvcanary.lab.clock import Clock

GENERATING: Final = ("/v1/chat/completions", "/v1/completions")
_RESPONSES_KEPT: Final = 1000
_MINUTE: Final = 60.0


@dataclass(frozen=True)
class Gateway:
    """Habits of what stands in front; None and False: it has no such habit.

    ``max_body_bytes``: longer bodies get 413. ``first_byte_seconds``: 504 when the upstream was
    silent that long. ``response_cache``: the same request gets the same response, id and all.
    ``tokens_per_minute``: of each API key, beyond which it gets 429. ``hides_usage``: responses
    have no ``usage``. ``overloaded_at``: that request of all gets 503. ``adds_headers``,
    ``reorders_json``: see `kvcanary.lab.dressing`.
    """

    max_body_bytes: int | None = None
    first_byte_seconds: float | None = None
    response_cache: bool = False
    tokens_per_minute: int | None = None
    hides_usage: bool = False
    overloaded_at: int | None = None
    adds_headers: bool = False
    reorders_json: bool = False


def _error_page(status: int, title: str) -> HTMLResponse:
    """As nginx writes it."""
    line = f"{status} {title}"
    return HTMLResponse(
        f"<html>\r\n<head><title>{line}</title></head>\r\n<body>\r\n"
        f"<center><h1>{line}</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
        status,
    )


class MaxBody:
    """Answers 413 to bodies of more than ``max_bytes``, as nginx's ``client_max_body_size`` does."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse; proxies read bodies whole before they pass them on."""
        request, size, held = Request(scope, receive), 0, list[bytes]()
        try:
            async for piece in request.stream():
                size += len(piece)
                if size <= self._max_bytes:
                    held.append(piece)
        except ClientDisconnect:
            return
        if size > self._max_bytes:
            await _error_page(413, "Request Entity Too Large")(scope, receive, send)
        else:
            await self._app(scope, again(b"".join(held), receive), send)


def again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that begins with a body that was read already."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def message() -> Message:
        return first.pop() if first else await receive()

    return message


class ProxyTimeout:
    """Gives up on a silent upstream, as nginx's ``proxy_read_timeout`` does: 504 when no byte has
    come, a cut connection when the answer had begun. The upstream sees its client leave."""

    def __init__(self, app: ASGIApp, seconds: float, clock: Clock) -> None:
        self._app = app
        self._seconds = seconds
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on while bytes come."""
        heard = asyncio.Event()
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            heard.set()
            await send(message)

        upstream = asyncio.ensure_future(self._app(scope, receive, sent))
        try:
            while not upstream.done():
                heard.clear()
                if not await self._anything(upstream, heard):
                    break
        finally:
            upstream.cancel()
            (end,) = await asyncio.gather(upstream, return_exceptions=True)
        if isinstance(end, Exception):
            raise end
        if isinstance(end, asyncio.CancelledError) and not begun:
            await _error_page(504, "Gateway Time-out")(scope, receive, send)

    async def _anything(self, upstream: asyncio.Future[None], heard: asyncio.Event) -> bool:
        """Whether a byte or the end came in time."""
        limit = asyncio.ensure_future(self._clock.sleep(self._seconds))
        byte = asyncio.ensure_future(heard.wait())
        try:
            await asyncio.wait((upstream, byte, limit), return_when=asyncio.FIRST_COMPLETED)
            return upstream.done() or byte.done()
        finally:
            for waiting in (limit, byte):
                waiting.cancel()


class ResponseCache:
    """Answers a request that it has seen by the response that it got: same id, same bytes.

    Keyed by path, model, messages or prompt, ``max_tokens`` and whether it streams. Whoever asks.
    A fault leaves the messages out of the key.
    """

    def __init__(self, app: ASGIApp, chances: Chances) -> None:
        self._app = app
        self._chances = chances
        self._kept: OrderedDict[bytes, list[Message]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replay, or pass on and keep what was a success."""
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        key, shape = _cache_key(scope["path"], body), _cache_key(scope["path"], body, text=False)
        found = self._kept.get(key or b"")
        weak = shape in self._kept and self._chances.strikes(
            FaultKey.GATEWAY_CACHE, Request(scope).headers.get("x-request-id", "")
        )
        if weak:
            found = self._kept[shape or b""]
        if found is not None:
            for message in found:
                await send(message)
            return
        messages: list[Message] = []

        async def sent(message: Message) -> None:
            messages.append(message)
            await send(message)

        await self._app(scope, again(body, receive), sent)
        if key is not None and _succeeded(messages):
            self._kept[key] = messages
            if shape is not None and self._chances.has(FaultKey.GATEWAY_CACHE):
                self._kept[shape] = messages
            while len(self._kept) > _RESPONSES_KEPT:
                self._kept.popitem(last=False)


def _cache_key(path: str, body: bytes, *, text: bool = True) -> bytes | None:
    """What a response is kept under; None: it cannot be kept. Without ``text`` only the shape of
    the request counts."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    names = ["model", "max_tokens", "max_completion_tokens", "stream"]
    names += ["messages", "prompt"] if text else []
    asked = json.dumps([path, *(fields.get(name) for name in names)])
    return blake2b(asked.encode(), digest_size=16).digest()


def _succeeded(messages: list[Message]) -> bool:
    whole = bool(messages) and messages[0].get("status") == 200
    whole = whole and not messages[-1].get("more_body", False)
    return whole and not any(m.get("body", b"").startswith(b'data: {"error"') for m in messages)


@dataclass(frozen=True)
class OverRate:
    """A request that its key may not send now. ``wait_seconds``: when to try again."""

    limit_tokens: int
    used_tokens: int
    requested_tokens: int
    wait_seconds: int

    @property
    def message(self) -> str:
        """In the words that are usual."""
        numbers = (
            f"Limit {self.limit_tokens}, Used {self.used_tokens}, "
            f"Requested {self.requested_tokens}."
        )
        if self.requested_tokens > self.limit_tokens:
            return f"Request too large on tokens per min (TPM): {numbers}"
        return (
            f"Rate limit reached on tokens per min (TPM): {numbers} "
            f"Please try again in {self.wait_seconds}s."
        )


class TokensPerMinute:
    """Counts what each key was let through in the last sixty seconds: prompt tokens, and the
    output tokens that were asked for."""

    def __init__(self, limit_tokens: int, clock: Clock) -> None:
        self._limit = limit_tokens
        self._clock = clock
        self._spent: dict[str, deque[tuple[float, int]]] = {}

    def charge(self, key: str, tokens: int) -> OverRate | None:
        """Let ``tokens`` through and count them, or say why not."""
        now, spent = self._clock.now(), self._spent.setdefault(key, deque())
        while spent and spent[0][0] <= now - _MINUTE:
            spent.popleft()
        used = sum(amount for _, amount in spent)
        if used + tokens <= self._limit:
            spent.append((now, tokens))
            return None
        wait, left = _MINUTE, used
        for at, amount in spent:
            left -= amount
            if left + tokens <= self._limit:
                wait = at + _MINUTE - now
                break
        return OverRate(self._limit, used, tokens, max(1, math.ceil(wait)))

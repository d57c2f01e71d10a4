"""What gateways do to sound answers on the way: other headers and ids, JSON in another order, one 503."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvcanary.lab.gateway import GENERATING

_ADDED: Final = (
    (b"via", b"1.1 edge-3 (envoy)"),
    (b"x-served-by", b"cache-fra-0042, router-7"),
    (b"x-envoy-upstream-service-time", b"17"),
    (b"set-cookie", b"route=7f3c; Path=/; HttpOnly"),
)
_EVENT: Final = b"data: "


class OverloadedOnce:
    """Answers one request, the ``number``-th, with 503 and asks to try again."""

    def __init__(self, app: ASGIApp, number: int) -> None:
        self._app = app
        self._number = number
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, but for one."""
        if scope["type"] == "http" and scope["path"] in GENERATING:
            self._count += 1
            if self._count == self._number:
                error = {"message": "The server is overloaded. Try again.", "code": 503}
                busy = JSONResponse({"error": error}, 503, {"retry-after": "1"})
                await busy(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Rewriter:
    """Rewrites answers to generation requests, event by event.

    ``headers``: adds headers of its own and ids of its own, the same for all of one answer.
    ``order``: writes the keys of every object in another order, with spaces.
    """

    def __init__(self, app: ASGIApp, *, headers: bool, order: bool) -> None:
        self._app = app
        self._headers = headers
        self._order = order

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes in, rewrite what goes out."""
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [h for h in message["headers"] if h[0].lower() != b"content-length"]
                message = {**message, "headers": [*kept, *(_ADDED if self._headers else ())]}
            elif message.get("body"):
                message = {**message, "body": self._rewritten(message["body"])}
            await send(message)

        await self._app(scope, receive, sent)

    def _rewritten(self, body: bytes) -> bytes:
        if not body.startswith(_EVENT):
            return self._document(body)
        return b"".join(
            _EVENT + self._document(event.removeprefix(_EVENT)) + b"\n\n"
            for event in body.split(b"\n\n")
            if event
        )

    def _document(self, raw: bytes) -> bytes:
        try:
            fields = json.loads(raw)
        except ValueError:
            return raw
        if self._headers and isinstance(fields, dict) and "id" in fields:
            name = blake2b(str(fields["id"]).encode(), digest_size=9).hexdigest()
            fields["id"] = f"gw-{name}"
        if not self._order:
            return json.dumps(fields, separators=(",", ":")).encode()
        return json.dumps(_reversed(fields), ensure_ascii=True).encode()


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value

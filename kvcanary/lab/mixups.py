"""Gateways that hand one caller what belongs to another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvcanary.lab.chances import Chances, FaultKey
from kvcanary.lab.gateway import GENERATING, again

_PIECE: Final = b'data: {"id"'


def name_of(scope: Scope) -> str:
    """The ``X-Request-Id`` of a request, by which the truth knows it; may be empty."""
    value: bytes = dict(scope["headers"]).get(b"x-request-id", b"")
    return value.decode("latin-1")


@dataclass(eq=False)
class _Connection:
    """One connection to the upstream, with the answers that lie in it, oldest first."""

    unread: list[asyncio.Future[list[Message]]] = field(default_factory=list)


class OffByOne:
    """A connection pool that forgets to close the connection of a cancelled request.

    The answer stays in the connection. Whoever gets it next reads that answer, and leaves its own
    for the one after (the 2023 incident with a Redis client).
    """

    def __init__(self, app: ASGIApp, chances: Chances) -> None:
        self._app = app
        self._chances = chances
        self._idle: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and answer with what comes first out of the connection."""
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return
        connection = self._idle.pop() if self._idle else _Connection()
        if connection.unread:
            await self._misread(connection, scope, receive, send)
        else:
            await self._pass(connection, scope, receive, send)

    async def _misread(
        self, connection: _Connection, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """The request goes out, and what comes in is the answer to an earlier one."""
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            self._idle.append(connection)
            return
        self._chances.reaches(FaultKey.GATEWAY_OFF_BY_ONE, name_of(scope))
        own: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._answer(own, scope, again(body, _never)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        earlier = connection.unread.pop(0)
        connection.unread.append(own)
        messages = await earlier
        self._idle.append(connection)
        for message in messages:
            await send(message)

    async def _answer(
        self, answer: asyncio.Future[list[Message]], scope: Scope, receive: Receive
    ) -> None:
        messages: list[Message] = []

        async def sent(message: Message) -> None:
            messages.append(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            answer.set_result(messages)

    async def _pass(
        self, connection: _Connection, scope: Scope, receive: Receive, send: Send
    ) -> None:
        messages: list[Message] = []
        left: asyncio.Future[list[Message]] | None = None

        async def message() -> Message:
            nonlocal left
            came = await receive()
            gone = came["type"] == "http.disconnect"
            if gone and self._chances.strikes(FaultKey.GATEWAY_OFF_BY_ONE, name_of(scope)):
                left = asyncio.get_running_loop().create_future()
                connection.unread.append(left)
                self._idle.append(connection)
                return await _never()  # the upstream is not told
            return came

        async def sent(piece: Message) -> None:
            messages.append(piece)
            if left is None:
                await send(piece)

        try:
            await self._app(scope, message, sent)
        finally:
            if left is not None:
                left.set_result(messages)
            else:
                self._idle.append(connection)


async def _never() -> Message:
    """No message: for an upstream that does not hear of its client's leaving."""
    nothing: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return await nothing


@dataclass(eq=False)
class _Stream:
    name: str
    send: Send


class WrongStream:
    """Writes a piece of a stream to another stream that is open, now and then."""

    def __init__(self, app: ASGIApp, chances: Chances) -> None:
        self._app = app
        self._chances = chances
        self._open: list[_Stream] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass pieces on, most of them to where they belong."""
        if scope["type"] != "http" or scope["path"] not in GENERATING:
            await self._app(scope, receive, send)
            return
        stream = _Stream(name_of(scope), send)

        async def sent(message: Message) -> None:
            if message.get("body", b"").startswith(_PIECE):
                if stream not in self._open:
                    self._open.append(stream)
                await self._other(stream).send(message)
            else:
                await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            if stream in self._open:
                self._open.remove(stream)

    def _other(self, stream: _Stream) -> _Stream:
        others = [other for other in self._open if other is not stream]
        if not others or not self._chances.strikes(FaultKey.GATEWAY_CHUNK, stream.name):
            return stream
        self._chances.reaches(FaultKey.GATEWAY_CHUNK, others[0].name)
        return others[0]

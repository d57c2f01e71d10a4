"""One HTTP exchange: read the body, wait for the room, write the answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kvcanary.lab.deployment import Deployment
from kvcanary.lab.gateway import OverRate, TokensPerMinute
from kvcanary.lab.limits import Refusal, no_such_adapter
from kvcanary.lab.requests import Asked, BadBodyError, parse_generation
from kvcanary.lab.room import Aborted, Delta, Finished, Refused, Room
from kvcanary.lab.sglang_answers import DONE, AnswerShape, SglangWords, compact
from kvcanary.lab.tokenizer import Tokenizer
from kvcanary.lab.vllm_answers import VllmShape, VllmWords

_SHORT_BODY_BYTES: Final = 1 << 16
_CLIENT_GONE: Final = 499

Shape = AnswerShape | VllmShape
Words = SglangWords | VllmWords
"""How an engine says things."""


class BodyReader:
    """Reads and parses bodies; the long ones in a thread, two at a time."""

    def __init__(self, deployment: Deployment) -> None:
        scenario, tokenizer = deployment.scenario, deployment.tokenizer
        self._parse = partial(
            parse_generation,
            tokenizer=tokenizer,
            system=public_text(tokenizer, scenario.system_prompt_tokens),
            must_think=scenario.speech.overthinks,
        )
        self._threads = asyncio.Semaphore(2)

    async def asked(self, request: Request, *, chat: bool) -> Asked:
        """The request in the body. Raises BadBodyError and ClientDisconnect."""
        body = await read_body(request)
        if len(body) <= _SHORT_BODY_BYTES:
            return self._parse(body, chat=chat)
        async with self._threads:
            return await asyncio.to_thread(self._parse, body, chat=chat)


def public_text(tokenizer: Tokenizer, words: int) -> str:
    """So many words that everybody may know."""
    known = tokenizer.words
    return " ".join(known[(at * 7919) % len(known)] for at in range(words))


async def read_body(request: Request) -> bytes:
    """The whole body, joined once."""
    return b"".join([piece async for piece in request.stream()])


@dataclass(frozen=True)
class FrontDoor:
    """Answers generation requests out of a deployment, or out of the one it falls back to.

    ``budget``: what each API key may send.
    """

    deployment: Deployment
    fallback: Deployment | None
    bodies: BodyReader
    budget: TokensPerMinute | None
    words: Words

    async def generate(self, request: Request, *, chat: bool) -> Response:
        """``/v1/chat/completions`` and ``/v1/completions``."""
        name = name_of(request)
        try:
            asked = await self.bodies.asked(request, chat=chat)
        except BadBodyError as error:
            return refused(self.words, Refusal(str(error), by="front"), name)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        over = self._over_rate(request, asked)
        if over is not None:
            return _rate_limited(over, name)
        deployment = self._responsible(asked)
        rank = asked.rank
        header = request.headers.get("x-data-parallel-rank")
        if header is not None:
            rank = int(header) if header.isdecimal() else -1
        refusal = deployment.unknown_model(asked.model, "prefill") or deployment.front_refusal(
            len(asked.prompt_ids), asked.sampling.max_new_tokens, chat=chat, rank=rank
        )
        if refusal is not None:
            return refused(self.words, refusal, name)
        adapter = deployment.adapter_of(asked.model)
        if adapter is None:
            return refused(self.words, no_such_adapter(deployment.scenario.adapters), name)
        room = deployment.submit(
            name,
            asked.prompt_ids,
            asked.sampling,
            salt=asked.cache_salt,
            streaming=asked.stream,
            rank=rank,
            adapter=adapter,
            objection=asked.objection,
        )
        own = deployment is self.deployment
        model = (asked.model if own else "") or deployment.scenario.model_name
        shape = self.words.shape(asked, model, name, room.fingerprint)
        if self.deployment.scenario.gateway.hides_usage:
            shape = replace(shape, hides_usage=True)
        return await answered(request, asked, room, shape, self.words, name)

    def _over_rate(self, request: Request, asked: Asked) -> OverRate | None:
        if self.budget is None:
            return None
        tokens = len(asked.prompt_ids) + (asked.sampling.max_new_tokens or 0)
        return self.budget.charge(request.headers.get("authorization", ""), tokens)

    def _responsible(self, asked: Asked) -> Deployment:
        """The fallback for what is too long for the model that was asked."""
        rule = self.deployment.scenario.fallback
        if rule is None or self.fallback is None or len(asked.prompt_ids) <= rule.above_tokens:
            return self.deployment
        return self.fallback


def _rate_limited(over: OverRate, name: str) -> Response:
    error = {
        "message": over.message,
        "type": "tokens",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    headers = {"retry-after": str(over.wait_seconds), "x-request-id": name}
    return _json({"error": error}, headers, 429)


def name_of(request: Request) -> str:
    """What the client calls its request."""
    return request.headers.get("x-request-id") or secrets.token_hex(16)


async def answered(
    request: Request, asked: Asked, room: Room, shape: Shape, words: Words, name: str
) -> Response:
    """The answer that comes out of a room, streamed or whole. Ends the room if the client goes."""
    if asked.stream:
        return EventStream(room, shape, words, name)
    watch = abort_when_gone(room, request.receive)
    try:
        return await _whole_answer(room, shape, words, name)
    finally:
        watch.cancel()
        room.end(Aborted())


def refused(words: Words, refusal: Refusal, name: str) -> Response:
    """A refusal as an HTTP error."""
    headers = {**words.headers(refusal), "x-request-id": name}
    return _json(words.error(refusal), headers, refusal.status)


def whole(payload: dict[str, object], name: str) -> Response:
    """A JSON answer."""
    return _json(payload, {"x-request-id": name})


def gone() -> Response:
    """The client does not wait any longer."""
    return Response(status_code=_CLIENT_GONE)


def _json(payload: dict[str, object], headers: dict[str, str], status: int = 200) -> Response:
    return Response(compact(payload), status, headers, "application/json")


async def _whole_answer(room: Room, shape: Shape, words: Words, name: str) -> Response:
    text = reasoning = ""
    while True:
        match await room.events.get():
            case Delta(piece, reasoning=True):
                reasoning += piece
            case Delta(piece):
                text += piece
            case Finished() as end:
                return whole(shape.complete(text + end.tail, reasoning, end), name)
            case Refused(refusal):
                return refused(words, refusal, name)
            case Aborted():
                return gone()


def abort_when_gone(room: Room, receive: Receive) -> asyncio.Task[None]:
    """Watches the connection; once the client has gone, the request is aborted."""

    async def watch() -> None:
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await receive()
        room.end(Aborted())

    return asyncio.create_task(watch())


class EventStream(Response):
    """The answer as server-sent events; 200 goes out before anything is known."""

    media_type = "text/event-stream"

    def __init__(self, room: Room, shape: Shape, words: Words, name: str) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._room = room
        self._shape = shape
        self._words = words
        self.init_headers({"x-request-id": name, "cache-control": "no-cache"})
        self.raw_headers = [(k, v) for k, v in self.raw_headers if k != b"content-length"]

    async def __call__(
        self,
        scope: Scope,  # noqa: ARG002 - ASGI's signature
        receive: Receive,
        send: Send,
    ) -> None:
        """Send events until the room ends or the client goes."""
        watch = abort_when_gone(self._room, receive)
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for piece in self._pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            self._room.end(Aborted())

    async def _pieces(self) -> AsyncIterator[bytes]:
        opened = not self._shape.chat
        while True:
            happened = await self._room.events.get()
            if isinstance(happened, Delta | Finished) and not opened:
                opened = True
                yield self._shape.opening()
            match happened:
                case Delta() as delta:
                    yield self._shape.part(delta)
                case Finished() as end:
                    yield self._shape.closing(end)
                    yield DONE
                    return
                case Refused(refusal):
                    yield self._words.streamed_error(refusal)
                    yield DONE
                    return
                case Aborted():
                    return

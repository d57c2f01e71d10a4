"""A worker's own door: one half of a request, as a router of prefill/decode deployments sends it.

sglang-router sends both halves at once, and they meet in a room by its number. vllm-router sends the
second half when prefill has answered the first, which says what to pull.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kvcanary.lab.adapters import BASE
from kvcanary.lab.decode import DecodeRank
from kvcanary.lab.deployment import Deployment
from kvcanary.lab.exchanges import (
    BodyReader,
    Words,
    abort_when_gone,
    answered,
    gone,
    name_of,
    refused,
    whole,
)
from kvcanary.lab.limits import Refusal, no_such_adapter
from kvcanary.lab.prefill import PrefillRank
from kvcanary.lab.requests import Asked, BadBodyError, Transfer
from kvcanary.lab.room import Aborted, Finished, LabRequest, Refused, Room
from kvcanary.lab.sglang_answers import SglangWords
from kvcanary.lab.vllm_answers import VllmWords
from kvcanary.lab.worker import AnyWorker

_BOOTSTRAP_SECONDS: Final = 300.0
"""SGLang's ``SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT``."""


class HalfMissingError(Exception):
    """The other half of a request never came."""


@dataclass(frozen=True, eq=False)
class _Half:
    worker: AnyWorker
    asked: Asked
    name: str
    room: asyncio.Future[Room]


class BootstrapRooms:
    """Where halves wait for each other, by the number that the router gave them."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._waiting: dict[int, _Half] = {}

    async def join(self, number: int, worker: AnyWorker, asked: Asked, name: str) -> Room:
        """The room of both halves. Raises HalfMissingError."""
        mine = _Half(worker, asked, name, asyncio.get_running_loop().create_future())
        other = self._waiting.pop(number, None)
        if other is not None and other.worker.role != worker.role:
            room = self._meet(*((mine, other) if worker.role == "prefill" else (other, mine)))
            other.room.set_result(room)
            return room
        self._waiting[number] = mine
        expiry = asyncio.ensure_future(self._deployment.clock.sleep(_BOOTSTRAP_SECONDS))
        try:
            await asyncio.wait((expiry, mine.room), return_when=asyncio.FIRST_COMPLETED)
            if mine.room.done():
                return mine.room.result()
        finally:
            expiry.cancel()
            if self._waiting.get(number) is mine:
                del self._waiting[number]
        raise HalfMissingError

    def _meet(self, prefill: _Half, decode: _Half) -> Room:
        request = _request(self._deployment, decode.asked, decode.name)
        return self._deployment.meet(
            request, _of(prefill.worker, PrefillRank), _of(decode.worker, DecodeRank)
        )


def _request(deployment: Deployment, asked: Asked, name: str) -> LabRequest:
    """As a worker gets it. The number is the deployment's to give."""
    return LabRequest(
        0,
        name,
        asked.prompt_ids,
        asked.sampling,
        asked.cache_salt,
        asked.stream,
        adapter=deployment.adapter_of(asked.model) or BASE,
        objection=asked.objection,
    )


def _of(worker: Any, kind: type) -> Any:
    """The worker as one whose ranks are of that kind."""
    assert isinstance(worker.ranks[0], kind)  # noqa: S101 - its role says so
    return worker


@dataclass(frozen=True)
class PushedHalf:
    """A worker's door in SGLang's dialect."""

    deployment: Deployment
    worker: AnyWorker
    rooms: BootstrapRooms
    bodies: BodyReader
    words: SglangWords

    async def generate(self, request: Request, *, chat: bool) -> Response:
        """One half. Prefill answers with its first token, decode with the whole."""
        name = name_of(request)
        try:
            asked = await self.bodies.asked(request, chat=chat)
        except BadBodyError as error:
            return refused(self.words, Refusal(str(error), by="front"), name)
        except ClientDisconnect:
            return gone()
        if asked.bootstrap_room is None:
            message = "Disaggregated request received without bootstrap room id"
            return refused(self.words, Refusal(message, by="front"), name)
        refusal = self.deployment.front_refusal(
            len(asked.prompt_ids), asked.sampling.max_new_tokens, chat=chat, rank=asked.rank
        )
        if self.deployment.adapter_of(asked.model) is None:
            refusal = no_such_adapter(self.deployment.scenario.adapters)
        if refusal is not None:
            return refused(self.words, refusal, name)
        try:
            room = await self.rooms.join(asked.bootstrap_room, self.worker, asked, name)
        except HalfMissingError:
            refusal = Refusal("Decode transfer failed: bootstrap timeout", self.worker.role, 500)
            return refused(self.words, refusal, name)
        shape = self.words.shape(asked, asked.model, name, room.fingerprint)
        if self.worker.role == "decode":
            return await answered(request, asked, room, shape, self.words, name)
        return await _first_token(request, room, self.words, name, shape.complete)


async def _first_token(
    request: Request,
    room: Room,
    words: Words,
    name: str,
    complete: Callable[[str, str, Finished], dict[str, Any]],
) -> Response:
    """What prefill says when it has computed the prompt: its own count, and no text."""
    watch = abort_when_gone(room, request.receive)
    try:
        await room.computed.wait()
    finally:
        watch.cancel()
    if room.prefill_usage is not None:
        return whole(complete("", "", Finished("length", None, "", room.prefill_usage)), name)
    match room.outcome:
        case Refused(refusal):
            return refused(words, refusal, name)
        case _:
            return gone()


class ParkedRooms:
    """Prompts that prefill has computed and keeps, by the name that it gave them."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}

    def park(self, room: Room) -> str:
        """Keep it, under a new name."""
        self._rooms = {name: kept for name, kept in self._rooms.items() if not kept.ended}
        name = secrets.token_hex(16)
        self._rooms[name] = room
        return name

    def take(self, name: str | None) -> Room | None:
        """What was kept under that name, once; None when it is not there any more."""
        room = self._rooms.pop(name or "", None)
        return None if room is None or room.ended else room


@dataclass(frozen=True)
class PulledHalf:
    """A worker's door in vLLM's dialect."""

    deployment: Deployment
    worker: AnyWorker
    rooms: ParkedRooms
    bodies: BodyReader
    words: VllmWords

    async def generate(self, request: Request, *, chat: bool) -> Response:
        """One half, as ``kv_transfer_params`` says. The lab's workers do nothing by themselves."""
        name = name_of(request)
        try:
            asked = await self.bodies.asked(request, chat=chat)
        except BadBodyError as error:
            return refused(self.words, Refusal(str(error), by="front"), name)
        except ClientDisconnect:
            return gone()
        refusal = self._refusal(asked)
        if refusal is not None:
            return refused(self.words, refusal, name)
        if self.worker.role == "prefill":
            return await self._prefill(request, asked, name)
        room = self.rooms.take(asked.transfer.name if asked.transfer else None)
        if room is None:
            refusal = Refusal("the pages of this request are not kept any more", "decode", 500)
            return refused(self.words, refusal, name)
        self.deployment.take(
            room, _request(self.deployment, asked, name), _of(self.worker, DecodeRank)
        )
        shape = self.words.shape(asked, asked.model, name, room.fingerprint)
        return await answered(request, asked, room, shape, self.words, name)

    def _refusal(self, asked: Asked) -> Refusal | None:
        unknown = self.deployment.unknown_model(asked.model, self.worker.role)
        if unknown is not None:
            return unknown
        keeps = asked.transfer == Transfer(keeps=True, name=None)
        if (self.worker.role == "prefill") != keeps:
            message = "the lab's workers answer through a prefill/decode router only"
            return Refusal(message, self.worker.role, parameter="kv_transfer_params")
        return self.deployment.worker_refusal(
            self.worker.role,
            len(asked.prompt_ids),
            asked.sampling.max_new_tokens,
            chat=asked.chat,
        )

    async def _prefill(self, request: Request, asked: Asked, name: str) -> Response:
        room = self.deployment.meet(
            _request(self.deployment, asked, name), _of(self.worker, PrefillRank), None
        )
        shape = self.words.shape(asked, asked.model, name, room.fingerprint)
        kept = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [],
            "remote_engine_id": self.worker.name,
            "remote_request_id": self.rooms.park(room),
            "remote_host": "127.0.0.1",
            "remote_port": 5600,
            "tp_size": 1,
        }
        shape = replace(shape, kv_transfer_params=kept)
        response = await _first_token(request, room, self.words, name, shape.complete)
        if response.status_code != 200:
            room.end(Aborted())
        return response

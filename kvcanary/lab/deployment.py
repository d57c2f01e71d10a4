"""A deployment split into prefill and decode, without its HTTP: submit a request, read its room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import count

from kvcanary.lab.adapters import BASE, Adapter, adapter_named
from kvcanary.lab.chances import Chances, FaultKey
from kvcanary.lab.clock import Clock
from kvcanary.lab.decode import DecodeRank
from kvcanary.lab.lifecycle import fingerprint, next_version
from kvcanary.lab.limits import (
    Refusal,
    no_such_model,
    no_such_rank,
    output_over_context,
    over_context,
    over_context_with_output,
    vllm_refusal,
)
from kvcanary.lab.model import ModelShape
from kvcanary.lab.objections import Objection
from kvcanary.lab.pool import Pool
from kvcanary.lab.prefill import PrefillRank
from kvcanary.lab.room import Aborted, End, LabRequest, Refused, Room, Sampling
from kvcanary.lab.router import Route, Router
from kvcanary.lab.scenario import Dialect, Scenario, WorkerShape
from kvcanary.lab.speech import Voice
from kvcanary.lab.tokenizer import IntArray, Tokenizer
from kvcanary.lab.truth import RouteTruth, Truth, Witness
from kvcanary.lab.worker import AnyWorker, Rank, Worker

_CRASHED = Refusal("Internal server error", by="decode", status=500)
_RESTARTED = Refusal("Worker is not available: connection reset", by="decode", status=503)


class Deployment:
    """The prefill and decode workers of a scenario, their router, and the truth about their pages.

    Worker names are ``P1, P2, ...`` and ``D1, D2, ...``.
    """

    def __init__(
        self, scenario: Scenario, *, seed: int, tokenizer: Tokenizer, clock: Clock
    ) -> None:
        self.scenario = scenario
        self.truth = Truth()
        self.chances = Chances(scenario.faults, seed=seed, ledger=self.truth.ledger)
        self.tokenizer = tokenizer
        self.clock = clock
        self._serials = count(1)
        self._open: dict[Room, Route] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        model = ModelShape(
            seed=seed,
            suffix_tokens=scenario.suffix_tokens,
            copy_error_rate=scenario.copy_error_rate,
            prior=int(tokenizer.encode(" the")[0]),
            forgetful_tokens=scenario.speech.forgetful_tokens,
            repeatable=scenario.speech.repeatable,
        )
        self._voice = Voice(model, scenario.speech, tokenizer)
        version = scenario.engine_version
        self.prefill_workers = tuple(
            Worker(f"P{number}", version, partial(self._prefill_ranks, shape))
            for number, shape in enumerate(scenario.prefill_shapes, 1)
        )
        self.decode_workers = tuple(
            Worker(f"D{number}", version, partial(self._decode_ranks, shape))
            for number, shape in enumerate(scenario.decode_shapes, 1)
        )
        self._router = Router(
            self.prefill_workers, self.decode_workers, scenario.routing, seed=seed
        )

    def _prefill_ranks(self, shape: WorkerShape) -> tuple[PrefillRank, ...]:
        return tuple(
            PrefillRank(
                number, self.scenario, pool, self._voice, self.truth, self.chances, self.clock
            )
            for number, pool in enumerate(self._pools(shape))
        )

    def _decode_ranks(self, shape: WorkerShape) -> tuple[DecodeRank, ...]:
        ranks = tuple(
            DecodeRank(
                number, self.scenario, pool, self._voice, self.truth, self.chances, self.clock
            )
            for number, pool in enumerate(self._pools(shape))
        )
        for rank in ranks:
            rank.join(ranks)
        return ranks

    def _pools(self, shape: WorkerShape) -> Iterable[Pool]:
        page_tokens = self.scenario.page_tokens
        for tokens in shape.rank_pool_tokens:
            yield Pool(tokens, page_tokens, shape.free_list, Witness(tokens, page_tokens))

    @property
    def workers(self) -> tuple[AnyWorker, ...]:
        """All workers, prefill first."""
        return (*self.prefill_workers, *self.decode_workers)

    @property
    def prefill(self) -> PrefillRank:
        """Rank 0 of the first prefill worker."""
        return self.prefill_workers[0].ranks[0]

    @property
    def decode(self) -> DecodeRank:
        """Rank 0 of the first decode worker."""
        return self.decode_workers[0].ranks[0]

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks of all workers, prefill first."""
        return tuple(rank for worker in self.workers for rank in worker.ranks)

    @property
    def open_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def start(self) -> None:
        """Start the loops of all ranks."""
        for worker in self.workers:
            self._start(worker)

    def _start(self, worker: AnyWorker) -> None:
        self._tasks[worker.name] = []
        for rank in worker.ranks:
            task = asyncio.create_task(rank.run(), name=f"lab {worker.name} rank {rank.number}")
            task.add_done_callback(partial(self._stopped, worker))
            self._tasks[worker.name].append(task)

    async def stop(self) -> None:
        """Abort what is open and stop the loops.

        Raises what a rank's loop died of, if it did.
        """
        self._end_all(self._open, Aborted())
        tasks = [task for started in self._tasks.values() for task in started]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def front_refusal(
        self,
        prompt_tokens: int,
        max_new_tokens: int | None,
        *,
        chat: bool,
        rank: int | None = None,
    ) -> Refusal | None:
        """What is refused before any rank sees it: lengths beyond the context limit, and DP ranks
        that no worker has."""
        if rank is not None and not self._has_rank(rank):
            return no_such_rank(rank)
        if self.scenario.dialect is Dialect.VLLM:
            refusals = (
                self.worker_refusal(role, prompt_tokens, max_new_tokens, chat=chat)
                for role in ("prefill", "decode")
            )
            return next((refusal for refusal in refusals if refusal), None)
        if self.scenario.auto_truncate:
            return None
        context, output = self.scenario.context_tokens, max_new_tokens or 0
        if chat and output > context:
            return output_over_context(output, context)
        if prompt_tokens >= context:
            return over_context(prompt_tokens, context)
        if prompt_tokens + output > context:
            return over_context_with_output(prompt_tokens, output, context)
        return None

    def unknown_model(self, asked: str, by: str) -> Refusal | None:
        """What vLLM says to a name that it does not serve; SGLang takes any."""
        served = self.scenario.model_name
        names = ("", served, *(f"{served}:{adapter}" for adapter in self.scenario.adapters))
        if self.scenario.dialect is Dialect.SGLANG or asked in names:
            return None
        return no_such_model(asked, served, by)

    def adapter_of(self, model: str) -> Adapter | None:
        """The adapter that a request names with its model; None when it is not loaded."""
        return adapter_named(model, self.scenario.adapters, len(self.tokenizer.words))

    def worker_refusal(
        self, role: str, prompt_tokens: int, max_new_tokens: int | None, *, chat: bool
    ) -> Refusal | None:
        """What a vLLM worker's own API server refuses. The router asks prefill for one token only."""
        output = 1 if role == "prefill" else max_new_tokens
        context = self.scenario.context_of(role)
        return vllm_refusal(prompt_tokens, output, context, chat=chat, by=role)

    def _has_rank(self, rank: int) -> bool:
        return 0 <= rank < max(len(worker.ranks) for worker in self.workers)

    def submit(
        self,
        name: str,
        prompt_ids: IntArray,
        sampling: Sampling,
        *,
        salt: str,
        streaming: bool,
        rank: int | None = None,
        adapter: Adapter = BASE,
        objection: Objection | None = None,
    ) -> Room:
        """Hand a request to a prefill and a decode worker, as a prefill/decode router does.

        ``rank``: the DP rank that the client asked for. ``objection``: what prefill will have
        against it, whatever its length.
        """
        prompt_ids = self._whole(name, prompt_ids)
        request = LabRequest(
            self._next_serial(), name, prompt_ids, sampling, salt, streaming, adapter, objection
        )
        first_page = prompt_ids[: self.scenario.page_tokens].tobytes()
        return self._begin(request, self._router.route(first_page, rank))

    def meet(
        self,
        request: LabRequest,
        prefill: Worker[PrefillRank],
        decode: Worker[DecodeRank] | None,
    ) -> Room:
        """The same where somebody else's router chose the workers; ``decode`` None: it has not yet.
        ``request``: its number is not given yet."""
        request = replace(request, serial=self._next_serial())
        route = Route(prefill, prefill.rank_for(None))
        return self._begin(request, route if decode is None else route.taken_by(decode))

    def take(self, room: Room, request: LabRequest, decode: Worker[DecodeRank]) -> None:
        """Somebody else's router chose the decode worker for what prefill has computed. ``request``:
        as decode gets it."""
        if room.ended:
            return
        room.request = replace(request, serial=room.request.serial)
        room.prompt_tokens = request.prompt_tokens
        room.fingerprint = fingerprint(self.scenario.model_name, decode.version)
        self._open[room].count(-1)
        route = self._open[room] = self._open[room].taken_by(decode)
        route.count(+1)
        self._tell_truth(room.request, route)
        self._computed(room)

    def _next_serial(self) -> int:
        serial = next(self._serials)
        for change in self.scenario.changes:
            if serial == change.requests + 1:
                change.happen(self)
        return serial

    def _begin(self, request: LabRequest, route: Route) -> Room:
        """Prefill and decode get it; where decode pulls, it gets it once prefill is done."""
        self._tell_truth(request, route)
        answers = route.decode_worker or route.prefill_worker
        room = Room(
            request,
            fingerprint=fingerprint(self.scenario.model_name, answers.version),
            on_reserved=route.prefill.wake,
            on_computed=self._computed,
            on_end=self._ended,
        )
        self._give_id(room)
        self._open[room] = route
        route.count(+1)
        if route.decode is not None and not self.scenario.pulls:
            route.decode.receive(room)
        if not room.ended:
            route.prefill.receive(room)
        return room

    def _computed(self, room: Room) -> None:
        decode = self._open[room].decode
        if decode is not None and self.scenario.pulls:
            decode.receive(room)

    def _tell_truth(self, request: LabRequest, route: Route) -> None:
        self.truth.submitted(request.serial, request.name, request.prompt_tokens, _as_truth(route))

    def _whole(self, name: str, prompt_ids: IntArray) -> IntArray:
        """The prompt as it was sent."""
        for key in (FaultKey.TRUNCATED_HEAD, FaultKey.TRUNCATED_TAIL):
            if self.chances.strikes(key, name, len(prompt_ids)):
                limit = max(1, self.chances.above_tokens(key))
                head = key is FaultKey.TRUNCATED_HEAD
                prompt_ids = prompt_ids[-limit:] if head else prompt_ids[:limit]
        return prompt_ids

    def _give_id(self, room: Room) -> None:
        """Register a request under an id of its own."""
        older = next(iter(self._open), None)
        if older is not None and self.chances.strikes(
            FaultKey.ID_REUSE, room.request.name, room.prompt_tokens
        ):
            older.divert(room)
            self.chances.reaches(FaultKey.ID_REUSE, older.request.name)

    def _lose_memory(self, room: Room, worker: Worker[DecodeRank]) -> None:
        """Host memory that an ended request leaves behind; at the limit the process is killed."""
        limit = self.scenario.host_memory_tokens
        request = room.request
        if limit is None or not self.chances.strikes(
            FaultKey.HOST_MEMORY_LOST, request.name, request.prompt_tokens
        ):
            return
        worker.lost_tokens += request.prompt_tokens
        if worker.lost_tokens > limit and worker is self.decode_workers[0]:
            worker.lost_tokens = 0
            asyncio.get_running_loop().call_soon(self.restart_decode)

    def restart_decode(self) -> None:
        """The first decode worker restarts with the next version: open requests there fail with
        503, its pools are virgin, its counters begin again."""
        worker = self.decode_workers[0]
        for task in self._tasks.pop(worker.name):
            task.cancel()
        self._end_all(self._open_at(worker), Refused(_RESTARTED))
        worker.start(next_version(worker.version))
        self._start(worker)

    def change_version(self) -> None:
        """All workers report the next version; nothing else changes."""
        for worker in self.workers:
            worker.version = next_version(worker.version)

    def _ended(self, room: Room, end: End) -> None:
        route = self._open.pop(room)
        route.count(-1)
        if isinstance(end, Aborted):
            for rank in route.ranks:
                rank.counters.aborted_requests += 1
        if route.decode is not None:
            route.decode.retire(room)
        route.prefill.wake()
        if route.decode_worker is not None:
            self._lose_memory(room, route.decode_worker)

    def _end_all(self, rooms: Iterable[Room], end: End) -> None:
        for room in tuple(rooms):
            room.end(end)

    def _open_at(self, worker: AnyWorker) -> list[Room]:
        return [room for room, route in self._open.items() if worker in route.workers]

    def _stopped(self, worker: AnyWorker, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._end_all(self._open_at(worker), Refused(_CRASHED))


def _as_truth(route: Route) -> RouteTruth:
    return RouteTruth(
        prefill=route.prefill_worker.name,
        prefill_rank=route.prefill.number,
        decode=route.decode_worker.name if route.decode_worker else "",
        decode_rank=route.decode.number if route.decode else 0,
    )

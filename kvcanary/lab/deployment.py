"""A deployment split into prefill and decode, without its HTTP: submit a request, read its room."""

from __future__ import annotations

import asyncio
from itertools import count

from kvcanary.lab.clock import Clock
from kvcanary.lab.decode import DecodeWorker
from kvcanary.lab.limits import (
    Refusal,
    output_over_context,
    over_context,
    over_context_with_output,
)
from kvcanary.lab.model import ModelShape
from kvcanary.lab.pool import Pool
from kvcanary.lab.prefill import PrefillWorker
from kvcanary.lab.room import Aborted, End, LabRequest, Refused, Room, Sampling
from kvcanary.lab.scenario import Scenario, WorkerShape
from kvcanary.lab.tokenizer import IntArray, Tokenizer
from kvcanary.lab.truth import Truth, Witness

_CRASHED = Refusal("Internal server error", by="decode", status=500)


class Deployment:
    """One prefill and one decode worker of a scenario, and the truth about their pages."""

    def __init__(
        self, scenario: Scenario, *, seed: int, tokenizer: Tokenizer, clock: Clock
    ) -> None:
        self.scenario = scenario
        self.truth = Truth()
        self.tokenizer = tokenizer
        self._serials = count(1)
        self._open: set[Room] = set()
        self._tasks: list[asyncio.Task[None]] = []
        model = ModelShape(
            seed=seed,
            suffix_tokens=scenario.suffix_tokens,
            copy_error_rate=scenario.copy_error_rate,
            prior=int(tokenizer.encode(" the")[0]),
        )
        self.decode = DecodeWorker(
            scenario,
            self._pool(scenario.decode),
            model,
            tokenizer,
            self.truth,
            clock,
            on_reserved=lambda: self.prefill.wake(),
        )
        self.prefill = PrefillWorker(
            scenario, self._pool(scenario.prefill), self.decode, model, clock
        )

    def _pool(self, shape: WorkerShape) -> Pool:
        page_tokens = self.scenario.page_tokens
        witness = Witness(shape.pool_tokens, page_tokens)
        return Pool(shape.pool_tokens, page_tokens, shape.free_list, witness)

    @property
    def workers(self) -> tuple[PrefillWorker, DecodeWorker]:
        """Both workers, prefill first."""
        return self.prefill, self.decode

    @property
    def open_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    def start(self) -> None:
        """Start the workers' loops."""
        for worker in self.workers:
            task = asyncio.create_task(worker.run(), name=f"lab {worker.role} worker")
            task.add_done_callback(self._stopped)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Abort what is open and stop the loops.

        Raises what a worker's loop died of, if it did.
        """
        self._end_all(Aborted())
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def front_refusal(
        self, prompt_tokens: int, max_new_tokens: int | None, *, chat: bool
    ) -> Refusal | None:
        """What is refused before any worker sees it: lengths beyond the context limit."""
        context, output = self.scenario.context_tokens, max_new_tokens or 0
        if chat and output > context:
            return output_over_context(output, context)
        if prompt_tokens >= context:
            return over_context(prompt_tokens, context)
        if prompt_tokens + output > context:
            return over_context_with_output(prompt_tokens, output, context)
        return None

    def submit(
        self, name: str, prompt_ids: IntArray, sampling: Sampling, *, salt: str, streaming: bool
    ) -> Room:
        """Hand a request to both workers, as a prefill/decode router does."""
        serial = next(self._serials)
        self.truth.named(serial, name)
        room = Room(LabRequest(serial, name, prompt_ids, sampling, salt, streaming), self._ended)
        self._open.add(room)
        self.decode.receive(room)
        if not room.ended:
            self.prefill.receive(room)
        return room

    def _ended(self, room: Room, end: End) -> None:
        self._open.discard(room)
        if isinstance(end, Aborted):
            for worker in self.workers:
                worker.counters.aborted_requests += 1
        self.decode.retire(room)
        self.prefill.wake()

    def _end_all(self, end: End) -> None:
        for room in tuple(self._open):
            room.end(end)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._end_all(Refused(_CRASHED))

"""The way of computed pages from prefill's pool into the pages that decode reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kvcanary.lab.chances import Chances, FaultKey
from kvcanary.lab.clock import Clock
from kvcanary.lab.job import Job
from kvcanary.lab.pool import Pool
from kvcanary.lab.room import Aborted, Room, Taker
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.tokenizer import IntArray
from kvcanary.lab.truth import Truth

_LATE_STEPS: Final = 20
_QUEUED_STEPS: Final = 3
_EIGHTHS: Final = 8


@dataclass(frozen=True, eq=False, slots=True)
class _Plan:
    """Which pages go where; ``sent`` has one entry for each, False where a page is left out."""

    pool: Pool
    targets: IntArray
    sources: IntArray
    sent: npt.NDArray[np.bool_]


class Sender:
    """Sends the pages of one prefill rank, stripe by stripe and in order."""

    def __init__(
        self, scenario: Scenario, pool: Pool, truth: Truth, chances: Chances, clock: Clock
    ) -> None:
        self._scenario = scenario
        self._pool = pool
        self._truth = truth
        self._chances = chances
        self._clock = clock
        self._sent_before: IntArray | None = None
        self._completed = asyncio.Event()
        """Set when the transfer that completes next has done so."""

    async def send(self, job: Job, complete: Callable[[], None]) -> None:
        """Copy the job's pages and call ``complete``, unless the request ends before."""
        room, page_tokens = job.room, self._pool.page_tokens
        await self._wait_for_decode(room)
        if room.decode_table is None or room.taker is None:
            return
        plan = self._plan(job, room.decode_table, room.taker)
        stride = max(1, self._scenario.prefill_chunk_tokens // page_tokens)
        late = self._strikes(FaultKey.LATE_WRITE, job)
        blind = False
        for at in range(0, len(job.table), stride):
            pages = min(stride, len(job.table) - at)
            if not blind:
                seconds = pages * page_tokens / self._scenario.transfer_tokens_per_second
                await self._clock.sleep(seconds)
            if room.ended and not blind:
                blind = self._strikes(FaultKey.ABORT_IN_TRANSFER, job)
                if not blind:
                    return
                await self._flushed()
            if late and at + stride >= len(job.table):
                self._complete(complete)
                await self._clock.sleep(_LATE_STEPS * self._scenario.decode_step_seconds)
                self._write(job, plan, at, at + stride, FaultKey.LATE_WRITE)
                return
            self._write(job, plan, at, at + stride, FaultKey.ABORT_IN_TRANSFER)
        if not room.ended:
            self._complete(complete)

    def _complete(self, tell: Callable[[], None]) -> None:
        tell()
        self._completed.set()
        self._completed = asyncio.Event()

    async def _flushed(self) -> None:
        """Writes that nobody cancelled lie in the queue until the next transfer is through, and what it
        brought is being answered."""
        await self._completed.wait()
        await self._clock.sleep(_QUEUED_STEPS * self._scenario.decode_step_seconds)

    async def _wait_for_decode(self, room: Room) -> None:
        """Where decode pulls, keep the pages until it does; a request that it never asks for is given
        up."""
        if not self._scenario.pulls:
            return
        expiry = asyncio.ensure_future(self._clock.sleep(self._scenario.parked_seconds))
        asked = asyncio.ensure_future(room.reserved.wait())
        try:
            await asyncio.wait((expiry, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            expiry.cancel()
            asked.cancel()
        if not room.reserved.is_set():
            room.end(Aborted())

    def _plan(self, job: Job, targets: IntArray, decode: Taker) -> _Plan:
        sources, pool = job.table, decode.pool
        before, self._sent_before = self._sent_before, sources
        if before is not None and self._strikes(FaultKey.OTHER_PAGES_SENT, job):
            shared = min(len(before), len(sources))
            sources = np.concatenate((before[:shared], sources[shared:]))
        if decode.has_siblings and self._strikes(FaultKey.RANKS_CROSSED, job):
            pool = decode.next_rank.pool
            targets = targets % pool.page_count
            for name in self._truth.holders(pool.witness, pool.in_use(targets)):
                self._chances.reaches(FaultKey.RANKS_CROSSED, name)
        return _Plan(pool, targets, sources, self._coverage(job))

    def _coverage(self, job: Job) -> npt.NDArray[np.bool_]:
        """Which pages are sent: all of them, if all is well."""
        count = len(job.table)
        sent = np.ones(count, np.bool_)
        eighth = max(1, count // _EIGHTHS)
        middle = slice(3 * count // _EIGHTHS, max(5 * count // _EIGHTHS, count // 2 + 1))
        for key, left_out in (
            (FaultKey.NOTHING_SENT, slice(None)),
            (FaultKey.HEAD_MISSING, slice(eighth)),
            (FaultKey.MIDDLE_MISSING, middle),
            (FaultKey.TAIL_MISSING, slice(-eighth, None)),
        ):
            if self._strikes(key, job):
                sent[left_out] = False
        if len(job.ids) % self._pool.page_tokens and self._strikes(FaultKey.LAST_PAGE_LEFT, job):
            sent[-1] = False
        return sent

    def _write(self, job: Job, plan: _Plan, start: int, stop: int, fault: FaultKey) -> None:
        """Copy one stripe. ``fault``: what it is if the request has ended meanwhile."""
        sources, sent = plan.sources[start:stop], plan.sent[start:stop]
        targets = plan.targets[start:stop][: len(sources)]  # decode may have reserved more, or less
        sources, sent = sources[: len(targets)], sent[: len(targets)]
        if not sent.any():
            return
        if job.room.ended:
            for name in self._truth.holders(plan.pool.witness, plan.pool.in_use(targets[sent])):
                self._chances.reaches(fault, name)
        plan.pool.receive(targets[sent], self._pool, sources[sent])

    def _strikes(self, key: FaultKey, job: Job) -> bool:
        request = job.room.request
        return self._chances.strikes(key, request.name, request.prompt_tokens)

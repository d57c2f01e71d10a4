"""A rank of a prefill worker: computes prompts one after another and sends their pages to decode."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from kvcanary.lab.clock import Clock
from kvcanary.lab.counters import Counters
from kvcanary.lab.decode import DecodeRank
from kvcanary.lab.limits import Limits, Refusal, over_pool
from kvcanary.lab.pool import Pool
from kvcanary.lab.prefix_cache import PrefixCache, page_keys
from kvcanary.lab.room import Refused, Room
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.speech import Speaker, Voice
from kvcanary.lab.tokenizer import PLACEHOLDER, IntArray

_EMPTY: IntArray = np.empty(0, np.int32)


@dataclass(eq=False)
class _Job:
    """What prefill thinks of one request, and the rank of decode that waits for its pages.

    ``ids``: what it computes. ``pending_abort``: it refused the request; whether that ends the
    request depends on the gate. ``table``: its pages, of which the first ``hits`` were cached.
    """

    room: Room
    decode: DecodeRank
    ids: IntArray
    pending_abort: Refusal | None = None
    keys: list[bytes] = field(default_factory=list)
    table: IntArray = field(default_factory=_EMPTY.copy)
    hits: int = 0


class PrefillRank:
    """Queue, pool and prefix cache of one rank of a prefill worker."""

    role = "prefill"

    def __init__(
        self, number: int, scenario: Scenario, pool: Pool, voice: Voice, clock: Clock
    ) -> None:
        self.number = number
        self.pool = pool
        self.limits = Limits(scenario.context_tokens, pool.tokens)
        self.counters = Counters()
        self.cache = PrefixCache()
        self._scenario = scenario
        self._voice = voice
        self._clock = clock
        self._waiting: deque[_Job] = deque()
        self._computing: _Job | None = None
        self._inflight = 0
        self._transfers: asyncio.TaskGroup
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------------- what can be seen

    @property
    def running_requests(self) -> int:
        """Requests being computed."""
        return int(self._computing is not None)

    @property
    def queued_requests(self) -> int:
        """Requests that wait for decode's pages or for their turn."""
        return len(self._waiting)

    @property
    def inflight_requests(self) -> int:
        """Requests whose pages are on their way to decode."""
        return self._inflight

    @property
    def evictable_pages(self) -> int:
        """Cached pages that nobody uses."""
        return self.cache.evictable_pages

    # -------------------------------------------------------------------------------- the steps

    def receive(self, room: Room, decode: DecodeRank) -> None:
        """Check the length, mark a refusal, and let the queue's door decide (S30233).

        A refused prompt is replaced by one placeholder token, so that nothing downstream has to
        cope with its length. One that is truncated instead is cut to what this pool can hold,
        whatever decode's may.
        """
        job = _Job(room, decode, room.request.prompt_ids)
        if len(job.ids) >= self.limits.max_req_input_len and self._scenario.auto_truncate:
            job.ids = job.ids[: self.limits.max_req_input_len]
        elif len(job.ids) >= self.limits.max_req_input_len:
            job.pending_abort = over_pool(len(job.ids), self.limits.max_req_input_len, by=self.role)
            job.ids = np.array([PLACEHOLDER], np.int32)
        if self._scenario.gate.sees_pending_abort and job.pending_abort is not None:
            room.end(Refused(job.pending_abort))
            return
        self._waiting.append(job)
        self.wake()

    def wake(self) -> None:
        """Something changed: a reservation, an end, a released page."""
        self._changed.set()

    async def run(self) -> None:
        """Compute requests in the order in which decode reserved pages for them, for ever."""
        async with asyncio.TaskGroup() as self._transfers:
            while True:
                job = self._computing = await self._next_job()
                try:
                    await self._compute(job)
                finally:
                    self._computing = None

    async def _next_job(self) -> _Job:
        while True:
            self._waiting = deque(job for job in self._waiting if not job.room.ended)
            for job in self._waiting:
                if job.room.decode_table is not None:
                    self._waiting.remove(job)
                    return job
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _compute(self, job: _Job) -> None:
        if not await self._admit(job):
            return
        request = job.room.request
        done = job.hits * self.pool.page_tokens
        chunk_tokens = self._scenario.prefill_chunk_tokens
        while done < len(job.ids) and not job.room.ended:
            chunk = job.ids[done : done + chunk_tokens]
            await self._clock.sleep(len(chunk) / self._scenario.prefill_tokens_per_second)
            self.pool.write(job.table, done, chunk, request.serial)
            done += len(chunk)
        if job.room.ended:
            self._release(job, computed_pages=done // self.pool.page_tokens)
            return
        text = self._voice.model.attended(self.pool.gather(job.table, 0, len(job.ids)))
        sampling = request.sampling
        speaker = Speaker(
            self._voice, request.serial, thinks=sampling.thinks, ignore_eos=sampling.ignore_eos
        )
        first = speaker.next_token(text, _EMPTY)
        self._count(job)
        self._inflight += 1
        self._transfers.create_task(self._transfer(job, first))

    async def _admit(self, job: _Job) -> bool:
        """Lock what is cached and reserve pages for the rest; False when the request ended."""
        page_tokens = self.pool.page_tokens
        job.keys = page_keys(job.ids, page_tokens, job.room.request.cache_salt)
        reusable = (len(job.ids) - 1) // page_tokens  # the last token is always computed
        cached = self.cache.lock(job.keys[:reusable])
        job.hits = len(cached)
        missing = self.pool.pages_for(len(job.ids)) - job.hits
        while not job.room.ended:
            self._evict(missing - self.pool.free_pages)
            pages = self.pool.allocate(missing, job.room.request.serial)
            if pages is not None:
                job.table = np.concatenate((cached, pages))
                return True
            await self._change()
        self.cache.unlock(job.keys[: job.hits])
        return False

    def _evict(self, count: int) -> None:
        if count > 0:
            evicted = self.cache.evict(count)
            if len(evicted):
                self.pool.release(evicted)

    async def _transfer(self, job: _Job, first_token: int | None) -> None:
        """Copy the pages that were computed into the pages that decode reserved, in order."""
        room, page_tokens = job.room, self.pool.page_tokens
        stride = max(1, self._scenario.prefill_chunk_tokens // page_tokens)
        for at in range(0, len(job.table), stride):
            pages = job.table[at : at + stride]
            seconds = len(pages) * page_tokens / self._scenario.transfer_tokens_per_second
            await self._clock.sleep(seconds)
            if room.ended or room.decode_table is None:
                break
            target = room.decode_table[at : at + len(pages)]
            job.decode.pool.receive(target, self.pool, pages[: len(target)])
        else:
            cached_tokens = job.hits * page_tokens
            job.decode.transfer_complete(room, first_token, cached_tokens)
        self._inflight -= 1
        self._release(job, computed_pages=len(job.keys))

    def _release(self, job: _Job, *, computed_pages: int) -> None:
        """Full pages stay in the prefix cache, the rest goes back to the free list."""
        keys = job.keys[:computed_pages]
        spare = self.cache.insert(keys, job.table[: len(keys)], job.hits)
        self.cache.unlock(keys)
        loose = np.concatenate((spare, job.table[len(keys) :]))
        if len(loose):
            self.pool.release(loose)
        self.wake()

    def _count(self, job: _Job) -> None:
        streaming = job.room.request.streaming
        self.counters.prompt_tokens.add(len(job.ids), streaming=streaming)
        self.counters.generation_tokens.add(1, streaming=streaming)
        self.counters.requests.add(1, streaming=streaming)
        self.counters.cached_tokens += job.hits * self.pool.page_tokens

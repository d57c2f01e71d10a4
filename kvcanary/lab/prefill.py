"""A rank of a prefill worker: computes prompts one after another and sends their pages to decode."""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np

from kvcanary.lab.chances import Chances, FaultKey
from kvcanary.lab.clock import Clock
from kvcanary.lab.counters import Counters
from kvcanary.lab.host_tier import HostTier
from kvcanary.lab.job import Job
from kvcanary.lab.limits import over_pool
from kvcanary.lab.objections import TIMED_OUT, Objection, Step
from kvcanary.lab.pool import Pool, SavedPages
from kvcanary.lab.prefix_cache import Evicted, PrefixCache, page_keys
from kvcanary.lab.room import Refused, Room, Usage
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.speech import Speaker, Voice
from kvcanary.lab.tokenizer import PLACEHOLDER, IntArray
from kvcanary.lab.transfer import Sender
from kvcanary.lab.truth import Truth

_EMPTY: IntArray = np.empty(0, np.int32)


class PrefillRank:
    """Queue, pool and prefix cache of one rank of a prefill worker."""

    role = "prefill"

    def __init__(
        self,
        number: int,
        scenario: Scenario,
        pool: Pool,
        voice: Voice,
        truth: Truth,
        chances: Chances,
        clock: Clock,
    ) -> None:
        self.number = number
        self.pool = pool
        self.limits = scenario.limits(self.role, pool.tokens)
        self.counters = Counters()
        self.cache = PrefixCache()
        self.host = HostTier(scenario.host_tier_tokens // pool.page_tokens)
        self._scenario = scenario
        self._voice = voice
        self._chances = chances
        self._clock = clock
        self._sender = Sender(scenario, pool, truth, chances, clock)
        self._first_before: int | None = None
        self._warm_up_seconds = scenario.cold_start_seconds
        self._waiting: deque[Job] = deque()
        self._computing: Job | None = None
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

    def receive(self, room: Room) -> None:
        """Check the length, mark a refusal, and let the queue's door decide (S30233).

        A refused prompt is replaced by one placeholder token, so that nothing downstream has to
        cope with its length. One that is truncated instead is cut to what this pool can hold,
        whatever decode's may.
        """
        job = Job(room, room.request.prompt_ids, self._clock.now())
        if len(job.ids) >= self.limits.max_req_input_len and self._scenario.auto_truncate:
            job.ids = job.ids[: self.limits.max_req_input_len]
        objection = room.request.objection or self._too_long(job)
        if objection is not None:
            self._refuse(job, objection)
        if not room.ended:
            self._waiting.append(job)
            self.wake()

    def _too_long(self, job: Job) -> Objection | None:
        limit = self.limits.max_req_input_len
        if len(job.ids) < limit or self._scenario.auto_truncate:
            return None
        return Objection(Step.LENGTH, over_pool(len(job.ids), limit, by=self.role))

    def _refuse(self, job: Job, objection: Objection) -> None:
        """Mark the refusal, put the placeholder in place, and end the request if the door sees it."""
        job.pending_abort = objection.refusal
        job.ids = np.array([PLACEHOLDER], np.int32)
        sees = objection.step is not Step.LENGTH or self._scenario.gate.sees_pending_abort
        if sees and not self._strikes(objection.step.value, job):
            job.room.end(Refused(objection.refusal))

    def _strikes(self, key: FaultKey, job: Job) -> bool:
        request = job.room.request
        return self._chances.strikes(key, request.name, request.prompt_tokens)

    def wake(self) -> None:
        """Something changed: a reservation, an end, a released page."""
        self._changed.set()

    async def run(self) -> None:
        """Compute requests in the order in which decode reserved pages for them, for ever.

        Where decode pulls (vLLM), nothing is reserved yet: in the order in which they came.
        """
        async with asyncio.TaskGroup() as self._transfers:
            while True:
                job = self._computing = await self._next_job()
                try:
                    await self._compute(job)
                finally:
                    self._computing = None

    async def _next_job(self) -> Job:
        while True:
            self._give_up()
            self._waiting = deque(job for job in self._waiting if not job.room.ended)
            for job in self._waiting:
                if self._scenario.pulls or job.room.decode_table is not None:
                    self._waiting.remove(job)
                    return job
            await self._change()

    def _give_up(self) -> None:
        """Refuse what has waited too long; like the engine, it looks between two batches."""
        patience = self._scenario.waiting_timeout_seconds
        if patience is None:
            return
        for job in tuple(self._waiting):
            waited = self._clock.now() - job.received
            if waited > patience and job.pending_abort is None and not job.room.ended:
                self._refuse(job, TIMED_OUT)

    async def _change(self) -> None:
        """Wait until something changed, or until somebody has waited too long."""
        self._changed.clear()
        patience = self._scenario.waiting_timeout_seconds
        since = [job.received for job in self._waiting if job.pending_abort is None]
        if patience is None or not since:
            await self._changed.wait()
            return
        left = max(0.0, min(since) + patience - self._clock.now())
        waits = (
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self._clock.sleep(left + 0.001)),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _compute(self, job: Job) -> None:
        if not await self._admit(job):
            return
        if self._warm_up_seconds:
            await self._clock.sleep(self._warm_up_seconds)
            self._warm_up_seconds = 0.0
        done = await self._compute_chunks(job)
        if job.room.ended:
            self._release(job, computed_pages=done // self.pool.page_tokens)
            return
        first = self._first_token(job, computed=done > job.ready * self.pool.page_tokens)
        self._count(job)
        job.room.compute(Usage(len(job.ids), 1, job.ready * self.pool.page_tokens))
        if self._strikes(FaultKey.SENT_AFTER_RELEASE, job):
            self._release(job, computed_pages=job.hits)
        self._inflight += 1
        self._transfers.create_task(self._transfer(job, first))

    async def _compute_chunks(self, job: Job) -> int:
        """Compute until the prompt or the request ends; how many tokens are there then."""
        request, page_tokens = job.room.request, self.pool.page_tokens
        done = job.ready * page_tokens
        chunk_tokens = self._scenario.prefill_chunk_tokens
        while done < len(job.ids) and not job.room.ended:
            chunk = job.ids[done : done + chunk_tokens]
            await self._clock.sleep(len(chunk) / self._scenario.prefill_tokens_per_second)
            kept = request.adapter.written(chunk)
            last = done + len(chunk) == len(job.ids)
            if not last and self._strikes(FaultKey.CHUNK_EDGE, job):
                kept = kept[: -min(page_tokens, len(kept) - 1)]
            self.pool.write(job.table, done, kept, request.serial)
            done += len(chunk)
        return done

    def _first_token(self, job: Job, *, computed: bool) -> int | None:
        """The token that the last computed position gives; without one, what lies in the buffer."""
        request = job.room.request
        read = request.adapter.read(self.pool.gather(job.table, 0, len(job.ids)))
        sampling = request.sampling
        speaker = Speaker(
            self._voice, request.serial, thinks=sampling.thinks, ignore_eos=sampling.ignore_eos
        )
        first = speaker.next_token(self._voice.model.attended(read), _EMPTY)
        before, self._first_before = self._first_before, first
        if before is None:
            return first
        return before if not computed or self._strikes(FaultKey.FIRST_WORD, job) else first

    async def _admit(self, job: Job) -> bool:
        """Lock what is cached and reserve pages for the rest; False when the request ended."""
        page_tokens = self.pool.page_tokens
        job.keys = self._keys(job)
        reusable = (len(job.ids) - 1) // page_tokens  # the last token is always computed
        if not len(job.ids) % page_tokens and self._strikes(FaultKey.WHOLE_PROMPT_CACHED, job):
            reusable += 1
        cached = self.cache.lock(job.keys[:reusable])
        job.hits = job.ready = len(cached)
        missing = self.pool.pages_for(len(job.ids)) - job.hits
        while not job.room.ended:
            self._evict(missing - self.pool.free_pages, job)
            pages = self.pool.allocate(missing, job.room.request.serial)
            if pages is not None:
                job.table = np.concatenate((cached, pages))
                await self._load_back(job, job.keys[job.hits : reusable])
                return True
            await self._change()
        self.cache.unlock(job.keys[: job.hits])
        return False

    def _keys(self, job: Job) -> list[bytes]:
        request = job.room.request
        salt, adapter = request.cache_salt, request.adapter.name
        if salt and self._strikes(FaultKey.CACHE_IGNORES_SALT, job):
            salt = ""
        if salt and self._strikes(FaultKey.CACHE_TIMING, job):
            salt, job.shows_cached = "", False
        if adapter and self._strikes(FaultKey.CACHE_IGNORES_ADAPTER, job):
            adapter = ""
        weak = self._strikes(FaultKey.CACHE_COLLIDES, job)
        return page_keys(job.ids, self.pool.page_tokens, salt, adapter, weak=weak)

    def _evict(self, count: int, job: Job) -> None:
        evicted = self.cache.evict(max(0, count))
        if not len(evicted.pages):
            return
        if not self.host.exists:
            self.pool.release(evicted.pages)
        elif self._strikes(FaultKey.OFFLOAD_RACE, job):
            self.pool.release(evicted.pages)
            self._transfers.create_task(self._offload_late(evicted))
        else:
            self._offload(evicted)
            self.pool.release(evicted.pages)

    def _offload(self, evicted: Evicted) -> None:
        pages = [self.pool.save(evicted.pages[at : at + 1]) for at in range(len(evicted.pages))]
        self.host.keep(evicted.keys, pages)

    async def _offload_late(self, evicted: Evicted) -> None:
        """The copy is through when that many tokens are copied: the pages were free before it began."""
        tokens = len(evicted.pages) * self.pool.page_tokens
        await self._clock.sleep(tokens / self._scenario.host_tokens_per_second)
        self._offload(evicted)

    async def _load_back(self, job: Job, keys: list[bytes]) -> None:
        """Load what the host tier has of the prompt behind what is cached."""
        saved = self.host.run_of(keys)
        if not saved:
            return
        job.ready = job.hits + len(saved)
        pages = job.table[job.hits : job.ready]
        tokens = len(pages) * self.pool.page_tokens
        seconds = tokens / self._scenario.host_tokens_per_second
        if self._strikes(FaultKey.LOAD_BACK_EARLY, job):
            self._transfers.create_task(self._restore_after(seconds, pages, saved))
        else:
            await self._restore_after(seconds, pages, saved)

    async def _restore_after(
        self, seconds: float, pages: IntArray, saved: list[SavedPages]
    ) -> None:
        await self._clock.sleep(seconds)
        for at, page in enumerate(saved):
            self.pool.restore(pages[at : at + 1], page)

    async def _transfer(self, job: Job, first_token: int | None) -> None:
        """Send the pages that were computed, say that they are there, and let go of them."""

        def complete() -> None:
            shown = job.ready * self.pool.page_tokens if job.shows_cached else 0
            if not job.room.ended and job.room.taker is not None:
                job.room.taker.transfer_complete(job.room, first_token, shown)

        await self._sender.send(job, complete)
        self._inflight -= 1
        if not job.released:
            self._release(job, computed_pages=len(job.keys))

    def _release(self, job: Job, *, computed_pages: int) -> None:
        """Full pages stay in the prefix cache, the rest goes back to the free list."""
        job.released = True
        keys = job.keys[:computed_pages]
        spare = self.cache.insert(keys, job.table[: len(keys)], job.hits)
        self.cache.unlock(keys)
        loose = np.concatenate((spare, job.table[len(keys) :]))
        if len(loose):
            self.pool.release(loose)
        self.wake()

    def _count(self, job: Job) -> None:
        streaming = job.room.request.streaming
        self.counters.prompt_tokens.add(len(job.ids), streaming=streaming)
        self.counters.generation_tokens.add(1, streaming=streaming)
        self.counters.requests.add(1, streaming=streaming)
        self.counters.cached_tokens += job.ready * self.pool.page_tokens

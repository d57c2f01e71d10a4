"""A rank of a decode worker: reserves pages, waits for "transfer complete", then attends over them all."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kvcanary.lab.clock import Clock
from kvcanary.lab.counters import Counters
from kvcanary.lab.limits import Limits, over_pool
from kvcanary.lab.model import resident
from kvcanary.lab.pool import Pool
from kvcanary.lab.room import Delta, Finished, Refused, Room, Usage
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.speech import Speaker, Voice
from kvcanary.lab.stops import StopScanner
from kvcanary.lab.tokenizer import IntArray, Special, TextDecoder
from kvcanary.lab.truth import Truth

_EMPTY: IntArray = np.empty(0, np.int32)


@dataclass(eq=False)
class _Row:
    """A request in the running batch.

    ``text``: resident ids of the prompt's slots, as gathered when write number ``seen`` was the
    pool's last. ``generated``: output tokens so far; the KV of all but the newest is written.
    """

    room: Room
    table: IntArray
    cached_tokens: int
    max_new_tokens: int
    speaker: Speaker
    decoder: TextDecoder
    stops: StopScanner
    newest: int = 0
    generated: int = 0
    text: IntArray = field(default_factory=_EMPTY.copy)
    seen: int = -1
    thinking: bool = False
    reasoning_tokens: int = 0


class DecodeRank:
    """Queue, pool and running batch of one rank of a decode worker. It has no prefix cache."""

    role = "decode"
    evictable_pages = 0

    def __init__(
        self,
        number: int,
        scenario: Scenario,
        pool: Pool,
        voice: Voice,
        truth: Truth,
        clock: Clock,
    ) -> None:
        self.number = number
        self.pool = pool
        self.limits = Limits(scenario.context_tokens, pool.tokens)
        self.counters = Counters()
        self._scenario = scenario
        self._voice = voice
        self._truth = truth
        self._clock = clock
        self._prealloc: deque[Room] = deque()
        self._transferring: set[Room] = set()
        self._running: dict[Room, _Row] = {}
        self._busy = asyncio.Event()

    # ------------------------------------------------------------------------- what can be seen

    @property
    def running_requests(self) -> int:
        """Requests in the running batch."""
        return len(self._running)

    @property
    def queued_requests(self) -> int:
        """Requests that wait for pages."""
        return len(self._prealloc)

    @property
    def transferring_requests(self) -> int:
        """Requests that have pages and wait for their content."""
        return len(self._transferring)

    # -------------------------------------------------------------------------------- the steps

    def receive(self, room: Room) -> None:
        """Refuse or truncate what can never fit, queue the rest for pages."""
        length, limit = room.prompt_tokens, self.limits.max_req_input_len
        if length >= limit:
            if not self._scenario.auto_truncate:
                room.end(Refused(over_pool(length, limit, by=self.role)))
                return
            room.prompt_tokens = limit
        self._prealloc.append(room)
        self._preallocate()

    def _preallocate(self) -> None:
        """Reserve pages for whole prompts, first come first served, while there is room."""
        while self._prealloc and self._has_room(self._prealloc[0]):
            room = self._prealloc.popleft()
            pages = self.pool.pages_for(room.prompt_tokens)
            table = self.pool.allocate(pages, room.request.serial)
            assert table is not None  # noqa: S101 - there is room
            self._transferring.add(room)
            room.reserve(table)

    def _has_room(self, room: Room) -> bool:
        """Whether the prompt fits beside the output that everybody may still write."""
        pages = self.pool.pages_for(room.prompt_tokens)
        others = len(self._transferring) + len(self._running)
        if others:
            reserve = self.pool.pages_for(self._scenario.reserved_decode_tokens)
            pages += (others + 1) * reserve
        return pages <= self.pool.free_pages

    def transfer_complete(self, room: Room, first_token: int | None, cached_tokens: int) -> None:
        """Prefill says that the room's pages are here. That is all that is checked."""
        self._transferring.discard(room)
        request = room.request
        assert room.decode_table is not None  # noqa: S101 - prefill waits for the reservation
        sampling = request.sampling
        output_room = self.limits.output_room(room.prompt_tokens)
        row = self._running[room] = _Row(
            room=room,
            table=room.decode_table,
            cached_tokens=cached_tokens,
            max_new_tokens=min(sampling.max_new_tokens or output_room, output_room),
            speaker=Speaker(
                self._voice,
                request.serial,
                thinks=sampling.thinks,
                ignore_eos=sampling.ignore_eos,
                first_step=1,
            ),
            decoder=self._voice.tokenizer.decoder(),
            stops=StopScanner(sampling.stop),
        )
        row.thinking = row.speaker.thinks
        if room.prompt_tokens < request.prompt_tokens:
            self._finish(row, "length")  # truncated to the limit: no output fits behind it
            return
        self._busy.set()
        self._accept(row, first_token)

    async def run(self) -> None:
        """One token for every running request at each step, for ever."""
        while True:
            if not self._running:
                self._busy.clear()
                await self._busy.wait()
            for row in tuple(self._running.values()):
                self._step(row)
            await self._clock.sleep(self._scenario.decode_step_seconds)

    def _step(self, row: _Row) -> None:
        """Write the newest token's KV, attend over all pages of the table, choose the next."""
        request = row.room.request
        prompt = row.room.prompt_tokens
        end = prompt + row.generated
        if not self._grow(row, end):
            self._finish(row, "length")
            return
        changed = self.pool.written_since(row.table, row.seen)
        newest = np.array([row.newest], np.int32)
        row.seen = self.pool.write(row.table, end - 1, newest, request.serial)
        if changed:
            row.text = self._voice.model.attended(self.pool.gather(row.table, 0, prompt))
        if row.generated == 1:
            self._truth.attended(request.serial, self.pool.witness, row.table, prompt)
        recent = max(prompt, end - 2 * self._voice.model.suffix_tokens)
        output = resident(self.pool.gather(row.table, recent, end))
        self._accept(row, row.speaker.next_token(row.text, output))

    def _grow(self, row: _Row, tokens: int) -> bool:
        """See to it that the table has pages for ``tokens``; False when there are none."""
        missing = self.pool.pages_for(tokens) - len(row.table)
        if missing > 0:
            pages = self.pool.allocate(missing, row.room.request.serial)
            if pages is None:
                return False
            row.table = np.concatenate((row.table, pages))
        return True

    def _accept(self, row: _Row, token: int | None) -> None:
        if token is None:
            self._finish(row, "stop")
            return
        row.newest = token
        row.generated += 1
        row.reasoning_tokens += row.thinking
        if row.thinking and token == Special.THINK_END:
            row.room.say(Delta(self._flushed(row), token, reasoning=True))
            row.thinking = False
        else:
            text = row.stops.push(row.decoder.push(token))
            row.room.say(Delta(text, token, reasoning=row.thinking))
        if row.stops.matched is not None:
            self._finish(row, "stop")
        elif row.generated >= row.max_new_tokens:
            self._finish(row, "length")

    def _finish(self, row: _Row, reason: Literal["stop", "length"]) -> None:
        tail, request = self._flushed(row), row.room.request
        if row.thinking and tail:
            row.room.say(Delta(tail, row.newest, reasoning=True))
            tail = ""
        usage = Usage(
            row.room.prompt_tokens, row.generated, row.cached_tokens, row.reasoning_tokens
        )
        streaming = request.streaming
        self.counters.prompt_tokens.add(usage.prompt_tokens, streaming=streaming)
        self.counters.generation_tokens.add(usage.completion_tokens, streaming=streaming)
        self.counters.requests.add(1, streaming=streaming)
        row.room.end(Finished(reason, row.stops.matched, tail, usage))

    @staticmethod
    def _flushed(row: _Row) -> str:
        """Text that was held back for more to come."""
        return row.stops.push(row.decoder.flush()) + row.stops.flush()

    def retire(self, room: Room) -> None:
        """The request ended, for whatever reason: its pages go back, content and all."""
        row = self._running.pop(room, None)
        table = room.decode_table if row is None else row.table
        if table is None:
            if room in self._prealloc:
                self._prealloc.remove(room)
        else:
            self._transferring.discard(room)
            room.decode_table = None
            self.pool.release(table)
        self._preallocate()

"""A rank of a decode worker: reserves pages, waits for "transfer complete", then attends over them all."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from kvcanary.lab.chances import Chances, FaultKey
from kvcanary.lab.clock import Clock
from kvcanary.lab.counters import Counters
from kvcanary.lab.limits import over_pool
from kvcanary.lab.model import resident
from kvcanary.lab.pool import Pool, SavedPages
from kvcanary.lab.room import Delta, Finished, Refused, Room, Usage
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.speech import Speaker, Voice
from kvcanary.lab.stops import StopScanner
from kvcanary.lab.tokenizer import PLACEHOLDER, IntArray, Special, TextDecoder
from kvcanary.lab.truth import Truth

_EMPTY: IntArray = np.empty(0, np.int32)
_CLIPPED_TOKENS: Final = 8
_REPEATED_TOKENS: Final = 8
_LOADED: Final = 4
_WEAR: Final = 0.001
_DRAG: Final = 0.01


@dataclass(eq=False)
class _Row:
    """A request in the running batch.

    ``table``: the pages that it reads and writes, ``owned``: those that it has to give back; the
    same, unless its row was given to somebody else. ``text``: resident ids of the prompt's slots, as
    gathered when write number ``seen`` was the pool's last. ``generated``: output tokens so far; the
    KV of all but the newest is written. ``retracted``: its content, while it has no pages.
    ``degenerate``: it repeats one sign.
    """

    room: Room
    table: IntArray
    owned: IntArray
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
    retracted: SavedPages | None = None
    degenerate: bool = False
    clipped: bool = False

    @property
    def tokens(self) -> int:
        """Positions so far, that of the newest token included."""
        return self.room.prompt_tokens + self.generated


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
        chances: Chances,
        clock: Clock,
    ) -> None:
        self.number = number
        self.pool = pool
        self.limits = scenario.limits(self.role, pool.tokens)
        self.counters = Counters()
        self._scenario = scenario
        self._voice = voice
        self._truth = truth
        self._chances = chances
        self._clock = clock
        self._siblings: tuple[DecodeRank, ...] = (self,)
        self._prealloc: deque[Room] = deque()
        self._transferring: set[Room] = set()
        self._running: dict[Room, _Row] = {}
        self._retracted: deque[_Row] = deque()
        self._busy = asyncio.Event()
        # vLLM's decode computes the last token of the prompt itself, and chooses the first
        self._given_tokens = 0 if scenario.pulls else 1
        self._wear = 0
        self._drag = 0

    def join(self, siblings: tuple[DecodeRank, ...]) -> None:
        """These are all ranks of the worker, this one among them."""
        self._siblings = siblings

    @property
    def has_siblings(self) -> bool:
        """Whether the worker has more ranks than this one."""
        return len(self._siblings) > 1

    @property
    def next_rank(self) -> DecodeRank:
        """The rank after this one; this one where it is alone."""
        return self._siblings[(self.number + 1) % len(self._siblings)]

    # ------------------------------------------------------------------------- what can be seen

    @property
    def running_requests(self) -> int:
        """Requests in the running batch."""
        return len(self._running)

    @property
    def queued_requests(self) -> int:
        """Requests that wait for pages, for the first time or again."""
        return len(self._prealloc) + len(self._retracted)

    @property
    def transferring_requests(self) -> int:
        """Requests that have pages and wait for their content."""
        return len(self._transferring)

    # -------------------------------------------------------------------------------- the steps

    def receive(self, room: Room) -> None:
        """Refuse or truncate what can never fit, queue the rest for pages."""
        length, limit = room.prompt_tokens, self.limits.max_req_input_len
        if length >= limit:
            if self._scenario.auto_truncate:
                room.prompt_tokens = limit
            elif not self._strikes(FaultKey.DEADLOCK, room):
                room.end(Refused(over_pool(length, limit, by=self.role)))
                return
        self._prealloc.append(room)
        self._preallocate()

    def _preallocate(self) -> None:
        """Reserve pages for whole prompts, first come first served, while there is room; those who
        had pages before come first."""
        while self._retracted and self._can_resume(self._retracted[0]):
            self._resume(self._retracted.popleft())
        waiting = len(self._prealloc)
        while not self._retracted and self._prealloc and self._has_room(self._prealloc[0]):
            if self._frozen(self._prealloc[0]):
                return
            room = self._prealloc.popleft()
            pages = self.pool.pages_for(room.prompt_tokens)
            table = self.pool.allocate(pages, room.request.serial)
            assert table is not None  # noqa: S101 - there is room
            self._transferring.add(room)
            room.reserve(table, self)
        if waiting and not self._prealloc and self._chances.has(FaultKey.FROZEN_RANKS):
            for rank in self._siblings:
                if rank is not self:
                    rank._preallocate()

    def _frozen(self, room: Room) -> bool:
        """Whether another rank's being full holds up this one, too."""
        return any(rank is not self and rank.is_full for rank in self._siblings) and self._strikes(
            FaultKey.FROZEN_RANKS, room
        )

    @property
    def is_full(self) -> bool:
        """Whether the first in the queue has to wait for pages."""
        return bool(self._prealloc) and not self._has_room(self._prealloc[0])

    def _has_room(self, room: Room) -> bool:
        """Whether the prompt fits beside the output that everybody may still write."""
        pages = self.pool.pages_for(room.prompt_tokens)
        others = len(self._transferring) + len(self._running)
        if others:
            reserve = self.pool.pages_for(self._scenario.reserved_decode_tokens)
            pages += (others + 1) * reserve
        return pages <= self.pool.free_pages

    def _strikes(self, key: FaultKey, room: Room) -> bool:
        return self._chances.strikes(key, room.request.name, room.request.prompt_tokens)

    def transfer_complete(self, room: Room, first_token: int | None, cached_tokens: int) -> None:
        """Prefill says that the room's pages are here. That is all that is checked."""
        self._transferring.discard(room)
        request = room.request
        assert room.decode_table is not None  # noqa: S101 - prefill waits for the reservation
        sampling = request.sampling
        output_room = self.limits.output_room(room.prompt_tokens)
        output_room = min(output_room, self._scenario.output_cap_tokens or output_room)
        self._lend_row(room)
        row = self._running[room] = _Row(
            room=room,
            table=room.decode_table,
            owned=room.decode_table,
            cached_tokens=cached_tokens,
            max_new_tokens=min(sampling.max_new_tokens or output_room, output_room),
            speaker=Speaker(
                self._worn_voice(room),
                request.serial,
                thinks=sampling.thinks,
                ignore_eos=sampling.ignore_eos,
                first_step=self._given_tokens,
            ),
            decoder=self._voice.tokenizer.decoder(),
            stops=StopScanner(sampling.stop),
        )
        row.thinking = row.speaker.thinks
        if row.max_new_tokens > _CLIPPED_TOKENS and self._strikes(FaultKey.OUTPUT_CLIPPED, room):
            row.max_new_tokens, row.clipped = _CLIPPED_TOKENS, True
        if self._strikes(FaultKey.SLOWS_DOWN, room):
            self._drag += 1
        if room.prompt_tokens < request.prompt_tokens:
            self._finish(row, "length")  # truncated to the limit: no output fits behind it
            return
        self._busy.set()
        if self._given_tokens:
            self._accept(row, first_token)
        else:
            row.newest = int(request.prompt_ids[-1])

    def _lend_row(self, room: Room) -> None:
        """A newcomer gets a row of the page table of its own."""
        older = next(iter(self._running.values()), None)
        if older is None or not self._strikes(FaultKey.SLOT_REUSE, room):
            return
        assert room.decode_table is not None  # noqa: S101 - it is about to run
        shared = min(len(older.table), len(room.decode_table))
        older.table = np.concatenate((room.decode_table[:shared], older.table[shared:]))
        older.seen = -1
        self._chances.reaches(FaultKey.SLOT_REUSE, older.room.request.name)

    def _worn_voice(self, room: Room) -> Voice:
        """The model as it is by now."""
        if not self._strikes(FaultKey.WEARS_OUT, room):
            return self._voice
        self._wear += 1
        model = self._voice.model
        rate = min(1.0, model.copy_error_rate + _WEAR * self._wear)
        return replace(self._voice, model=replace(model, copy_error_rate=rate))

    async def run(self) -> None:
        """One token for every running request at each step, for ever."""
        while True:
            if not self._running:
                self._busy.clear()
                await self._busy.wait()
            self._step()
            await self._clock.sleep(self._scenario.decode_step_seconds * (1 + _DRAG * self._drag))

    def _step(self) -> None:
        """Make room for everybody's newest token, then choose a token for each row."""
        for row in tuple(self._running.values()):
            if row.room in self._running:
                self._make_room(row)
        batch = [(row, self._next_token(row)) for row in self._running.values()]
        for row, token in self._in_rows(batch):
            if row.room in self._running:
                self._accept(row, token)

    def _in_rows(self, batch: list[tuple[_Row, int | None]]) -> list[tuple[_Row, int | None]]:
        """Tokens given out to the rows that they were made for."""
        if len(batch) < 2 or not self._strikes(FaultKey.ROWS_CROSSED, batch[0][0].room):
            return batch
        rows, tokens = [row for row, _ in batch], [token for _, token in batch]
        for row in rows:
            self._chances.reaches(FaultKey.ROWS_CROSSED, row.room.request.name)
        return list(zip(rows, [*tokens[1:], tokens[0]], strict=True))

    def _next_token(self, row: _Row) -> int | None:
        """Write the newest token's KV, attend over all pages of the table, choose the next."""
        request = row.room.request
        prompt, end = row.room.prompt_tokens, row.tokens
        changed = self.pool.written_since(row.table, row.seen)
        newest = request.adapter.written(np.array([row.newest], np.int32))
        row.seen = self.pool.write(row.table, end - 1, newest, request.serial)
        if changed:
            read = request.adapter.read(self.pool.gather(row.table, 0, prompt))
            row.text = self._voice.model.attended(read)
            self._truth.looked(request.name, read, request.prompt_ids[:prompt])
        if row.generated == self._given_tokens:
            self._truth.attended(request.serial, self.pool.witness, row.table, prompt)
        recent = max(prompt, end - 2 * self._voice.model.suffix_tokens)
        output = resident(request.adapter.read(self.pool.gather(row.table, recent, end)))
        token = row.speaker.next_token(row.text, output)
        if len(self._running) >= _LOADED and not row.degenerate:
            row.degenerate = self._strikes(FaultKey.DEGENERATE_UNDER_LOAD, row.room)
        return PLACEHOLDER if row.degenerate else token

    # --------------------------------------------------------------------------- a pool that is full

    def _make_room(self, row: _Row) -> None:
        """See to it that the row's table has a page for its newest token.

        When there is none, the request that has said least gives its pages up (SGLang retracts in
        that order). An answer that nobody else can make room for ends.
        """
        while not self._grow(row, row.tokens):
            others = len(self._running) + len(self._transferring) > 1
            if not others:
                self._finish(row, "length")
                return
            least = min(self._running.values(), key=lambda r: (r.generated, -r.room.prompt_tokens))
            self._retract(least)
            if least is row:
                return

    def _grow(self, row: _Row, tokens: int) -> bool:
        """See to it that the table has pages for ``tokens``; False when there are none."""
        missing = self.pool.pages_for(tokens) - len(row.table)
        if missing > 0:
            pages = self.pool.allocate(missing, row.room.request.serial)
            if pages is None:
                return False
            row.table = np.concatenate((row.table, pages))
            row.owned = np.concatenate((row.owned, pages))
        return True

    def _retract(self, row: _Row) -> None:
        """Keep the request's content in host memory and give its pages up."""
        del self._running[row.room]
        row.retracted = self.pool.save(row.table)
        self.pool.release(row.owned)
        row.table = row.owned = row.room.decode_table = _EMPTY
        self._retracted.append(row)

    def _can_resume(self, row: _Row) -> bool:
        """Whether there is room for what it had, and for the output that everybody may write."""
        pages = self.pool.pages_for(row.tokens + 1)
        others = len(self._transferring) + len(self._running)
        if others:
            pages += (others + 1) * self.pool.pages_for(self._scenario.reserved_decode_tokens)
        return pages <= self.pool.free_pages or not others

    def _resume(self, row: _Row) -> None:
        """Give it pages again, and its content back."""
        saved, room = row.retracted, row.room
        assert saved is not None  # noqa: S101 - it was retracted
        table = self.pool.allocate(len(saved.ids), room.request.serial)
        assert table is not None  # noqa: S101 - there is room
        row.table = row.owned = room.decode_table = table
        row.retracted, row.seen = None, -1
        if not self._strikes(FaultKey.RESUME_EMPTY, room):
            self.pool.restore(table, saved)
        if self._strikes(FaultKey.RESUME_REPEATS, room):
            self._rewind(row)
        self._running[room] = row
        self._busy.set()

    def _rewind(self, row: _Row) -> None:
        """Go back to where the answer was some tokens ago."""
        back = min(_REPEATED_TOKENS, row.generated - 1)
        row.generated -= back
        at = row.tokens - 1
        kept = row.room.request.adapter.read(self.pool.gather(row.table, at, at + 1))
        row.newest = int(kept[0])

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
            self._finish(row, "stop" if row.clipped else "length")

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
        table = room.decode_table if row is None else row.owned
        if table is None:
            if room in self._prealloc:
                self._prealloc.remove(room)
        else:
            self._transferring.discard(room)
            self._retracted = deque(kept for kept in self._retracted if kept.room is not room)
            room.decode_table = None
            if not (len(table) and self._strikes(FaultKey.PAGES_LOST, room)):
                self.pool.release(table)
        self._preallocate()

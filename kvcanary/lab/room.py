"""One request on its way: what was asked, what prefill and decode share about it, what came out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from kvcanary.lab.adapters import BASE, Adapter
from kvcanary.lab.limits import Refusal
from kvcanary.lab.objections import Objection
from kvcanary.lab.pool import Pool
from kvcanary.lab.tokenizer import IntArray


@dataclass(frozen=True)
class Sampling:
    """How much to answer. ``max_new_tokens`` None: as much as fits. ``thinks``: whether a model
    that thinks may do so."""

    max_new_tokens: int | None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    thinks: bool = False


@dataclass(frozen=True, eq=False)
class LabRequest:
    """A request as the workers get it. ``serial`` counts requests, ``name`` is for the truth.

    ``objection``: what prefill has against it, whatever its length.
    """

    serial: int
    name: str
    prompt_ids: IntArray
    sampling: Sampling
    cache_salt: str
    streaming: bool
    adapter: Adapter = BASE
    objection: Objection | None = None

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt_ids)


@dataclass(frozen=True)
class Usage:
    """Tokens as the worker that answers counts them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Delta:
    """Text of the answer, or of the reasoning before it, that became final; may be empty."""

    text: str
    token: int
    reasoning: bool = False


@dataclass(frozen=True)
class Finished:
    """The answer is complete. ``matched_stop``: the stop string that ended it."""

    reason: Literal["stop", "length"]
    matched_stop: str | None
    tail: str
    usage: Usage


@dataclass(frozen=True)
class Refused:
    """The request was refused; nothing follows."""

    refusal: Refusal


@dataclass(frozen=True)
class Aborted:
    """The request was given up; nothing follows."""


_STATE_LOST: Final = Refusal("Internal server error", by="decode", status=500)

End = Finished | Refused | Aborted
Event = Delta | End


class Taker(Protocol):
    """A rank of decode as prefill sees it: takes pages, and is told when they are there."""

    pool: Pool

    @property
    def has_siblings(self) -> bool:
        """Whether the worker has more ranks than this one."""
        ...

    @property
    def next_rank(self) -> Taker:
        """The rank after this one; this one where it is alone."""
        ...

    def transfer_complete(self, room: Room, first_token: int | None, cached_tokens: int) -> None:
        """All pages of the room have been sent."""
        ...


class Room:
    """Where prefill and decode meet for one request (SGLang's bootstrap room, vLLM's transfer).

    ``fingerprint``: of the engine that answers. ``prompt_tokens``: how many of the prompt's tokens
    decode keeps. ``decode_table``: pages that ``taker`` reserved, both None before. ``computed``:
    prefill is done, or the room has ended. ``prefill_usage``: what prefill counted, None before.
    Ends once, by whoever is first.
    """

    def __init__(
        self,
        request: LabRequest,
        *,
        fingerprint: str,
        on_reserved: Callable[[], None],
        on_computed: Callable[[Room], None],
        on_end: Callable[[Room, End], None],
    ) -> None:
        self.request = request
        self.fingerprint = fingerprint
        self.prompt_tokens = request.prompt_tokens
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.decode_table: IntArray | None = None
        self.taker: Taker | None = None
        self.reserved = asyncio.Event()
        self.computed = asyncio.Event()
        self.prefill_usage: Usage | None = None
        self.outcome: End | None = None
        self._on_reserved = on_reserved
        self._on_computed = on_computed
        self._on_end = on_end
        self._outlet = self

    @property
    def ended(self) -> bool:
        """Whether it was finished, refused or aborted."""
        return self.outcome is not None

    def reserve(self, table: IntArray, taker: Taker) -> None:
        """Decode has these pages for the prompt: they may be filled."""
        self.decode_table, self.taker = table, taker
        self.reserved.set()
        self._on_reserved()

    def compute(self, usage: Usage) -> None:
        """Prefill has computed the prompt and counted so many tokens."""
        self.prefill_usage = usage
        self.computed.set()
        self._on_computed(self)

    def divert(self, other: Room) -> None:
        """From now on what this request says goes to another one's caller; its own gets a 500."""
        self._outlet = other

    def say(self, delta: Delta) -> None:
        """Pass on a part of the answer."""
        self._outlet.events.put_nowait(delta)

    def end(self, event: End) -> None:
        """Finish, refuse or abort; what comes later is ignored."""
        if not self.ended:
            self.outcome = event
            self.computed.set()
            self.reserved.set()
            self._on_end(self, event)
            self._outlet.events.put_nowait(event)
            if self._outlet is not self:
                self.events.put_nowait(Refused(_STATE_LOST))

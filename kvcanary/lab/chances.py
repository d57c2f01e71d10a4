"""When a fault goes off: which were chosen, how often, and the seeded draw at each opportunity."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from kvcanary.lab.harm import Ledger


class FaultKey(StrEnum):
    """Every fault that the lab can have. What each is: `kvcanary.lab.faults`."""

    REFUSED_OVER_POOL = "refused-over-pool"
    REFUSED_PARAMETER = "refused-parameter"
    REFUSED_GRAMMAR = "refused-grammar"
    REFUSED_TIME_OUT = "refused-time-out"
    ABORT_IN_TRANSFER = "abort-in-transfer"
    LATE_WRITE = "late-write"
    SENT_AFTER_RELEASE = "sent-after-release"
    OFFLOAD_RACE = "offload-race"
    NOTHING_SENT = "nothing-sent"
    HEAD_MISSING = "head-missing"
    MIDDLE_MISSING = "middle-missing"
    TAIL_MISSING = "tail-missing"
    OTHER_PAGES_SENT = "other-pages-sent"
    LOAD_BACK_EARLY = "load-back-early"
    SLOT_REUSE = "slot-reuse"
    ID_REUSE = "id-reuse"
    CACHE_IGNORES_SALT = "cache-ignores-salt"
    CACHE_IGNORES_ADAPTER = "cache-ignores-adapter"
    CACHE_COLLIDES = "cache-collides"
    CACHE_TIMING = "cache-timing"
    WHOLE_PROMPT_CACHED = "whole-prompt-cached"
    LAST_PAGE_LEFT = "last-page-left"
    CHUNK_EDGE = "chunk-edge"
    ROWS_CROSSED = "rows-crossed"
    RANKS_CROSSED = "ranks-crossed"
    RESUME_EMPTY = "resume-empty"
    RESUME_REPEATS = "resume-repeats"
    FIRST_WORD = "first-word"
    TRUNCATED_HEAD = "truncated-head"
    TRUNCATED_TAIL = "truncated-tail"
    OUTPUT_CLIPPED = "output-clipped"
    DEADLOCK = "deadlock"
    FROZEN_RANKS = "frozen-ranks"
    PAGES_LOST = "pages-lost"
    HOST_MEMORY_LOST = "host-memory-lost"
    GATEWAY_CACHE = "gateway-cache"
    GATEWAY_OFF_BY_ONE = "gateway-off-by-one"
    GATEWAY_CHUNK = "gateway-chunk"
    WEARS_OUT = "wears-out"
    SLOWS_DOWN = "slows-down"
    DEGENERATE_UNDER_LOAD = "degenerate-under-load"


@dataclass(frozen=True, slots=True)
class ChosenFault:
    """A fault that a deployment has.

    ``rate``: odds at each opportunity. ``every``: instead, each so-manieth opportunity.
    ``above_tokens``: only for prompts of more tokens than that.
    """

    key: FaultKey
    rate: float = 1.0
    every: int | None = None
    above_tokens: int = 0


class Chances:
    """The chosen faults of one deployment at work.

    Draws depend on the lab's seed, the fault and the number of the opportunity, never on what a
    request says.
    """

    def __init__(self, chosen: tuple[ChosenFault, ...], *, seed: int, ledger: Ledger) -> None:
        self._chosen = {fault.key: fault for fault in chosen}
        self._seed = seed
        self._ledger = ledger
        self._opportunities = Counter[FaultKey]()

    def has(self, key: FaultKey) -> bool:
        """Whether the deployment has this fault at all."""
        return key in self._chosen

    def above_tokens(self, key: FaultKey) -> int:
        """The length above which a fault that was chosen goes off."""
        return self._chosen[key].above_tokens

    def strikes(self, key: FaultKey, request: str, prompt_tokens: int | None = None) -> bool:
        """Whether the fault goes off now, at one more opportunity, for the request of that name.

        ``prompt_tokens`` None: what stands there cannot know the length; then no length spares it.
        """
        fault = self._chosen.get(key)
        if fault is None or (prompt_tokens is not None and prompt_tokens <= fault.above_tokens):
            return False
        self._opportunities[key] += 1
        number = self._opportunities[key]
        if fault.every is not None:
            strikes = number % fault.every == 0
        else:
            drawn = blake2b(f"{self._seed}/{key}/{number}".encode(), digest_size=8).digest()
            strikes = int.from_bytes(drawn, "big") < fault.rate * 2.0**64
        if strikes:
            self._ledger.struck(request, key)
        return strikes

    def reaches(self, key: FaultKey, request: str) -> None:
        """The fault, which went off for another request, changes something for this one."""
        self._ledger.reached(request, key)

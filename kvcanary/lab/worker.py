"""A worker: one engine process with a role, and one DP rank or more inside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from kvcanary.lab.decode import DecodeRank
from kvcanary.lab.prefill import PrefillRank

Rank = PrefillRank | DecodeRank
RankT = TypeVar("RankT", bound=Rank)


class Worker(Generic[RankT]):
    """One process. Each rank has its own pool, queue, prefix cache and counters.

    ``started``: seconds since 1970. ``open_requests``: what was routed here and has not ended.
    ``lost_tokens``: host memory that ended requests left behind, in tokens.
    """

    def __init__(
        self, name: str, version: str, make_ranks: Callable[[], tuple[RankT, ...]]
    ) -> None:
        self.name = name
        self.open_requests = 0
        self._make_ranks: Callable[[], tuple[RankT, ...]] = make_ranks
        self.start(version)

    def start(self, version: str) -> None:
        """Begin, or begin again: new ranks with virgin pools; everything counted is forgotten."""
        self.version = version
        self.started = time.time()
        self.lost_tokens = 0
        self.ranks = self._make_ranks()
        self._turn = 0

    @property
    def role(self) -> str:
        """``prefill`` or ``decode``."""
        return self.ranks[0].role

    def rank_for(self, asked: int | None) -> RankT:
        """The rank that was asked for where there is one, else the next in turn."""
        if asked is not None and asked < len(self.ranks):
            return self.ranks[asked]
        rank = self.ranks[self._turn % len(self.ranks)]
        self._turn += 1
        return rank


AnyWorker = Worker[PrefillRank] | Worker[DecodeRank]

"""How a router chooses among workers.

A policy sees what a router sees: how many requests each worker has open, and how a prompt begins.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

_PAGES_REMEMBERED: Final = 10_000


class Routing(StrEnum):
    """How a router spreads requests.

    ``round_robin`` goes through all pairs: decode moves on once prefill has gone round.
    ``lockstep`` is a round robin of its own for each role, as sglang-router has it: with as many
    prefill as decode workers, most pairs never meet. ``random`` is seeded. ``least_load`` takes the
    worker with the fewest open requests, the first among equals: one request at a time never meets
    another. ``cache_aware`` sends prompts that begin with the same page to the same workers.
    """

    ROUND_ROBIN = "round_robin"
    LOCKSTEP = "lockstep"
    RANDOM = "random"
    LEAST_LOAD = "least_load"
    CACHE_AWARE = "cache_aware"


class Policy(Protocol):
    """Chooses among the workers of one role."""

    def choose(self, loads: Sequence[int], first_page: bytes) -> int:
        """Index of the worker. ``loads``: open requests of each."""
        ...


class RoundRobin:
    """One after the other, ``stride`` requests each."""

    def __init__(self, stride: int = 1) -> None:
        self._stride = stride
        self._count = 0

    def choose(self, loads: Sequence[int], first_page: bytes) -> int:  # noqa: ARG002 - the protocol
        """The next in turn."""
        turn = self._count // self._stride
        self._count += 1
        return turn % len(loads)


class RandomChoice:
    """Any of them, by a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def choose(self, loads: Sequence[int], first_page: bytes) -> int:  # noqa: ARG002 - the protocol
        """An index by chance."""
        return self._random.randrange(len(loads))


class LeastLoad:
    """The one with the fewest open requests."""

    def choose(self, loads: Sequence[int], first_page: bytes) -> int:  # noqa: ARG002 - the protocol
        """The first of the least loaded."""
        return min(range(len(loads)), key=loads.__getitem__)


class CacheAware:
    """The one that saw this first page before; a new page goes to whoever has seen the fewest."""

    def __init__(self) -> None:
        self._seen_by: OrderedDict[bytes, int] = OrderedDict()

    def choose(self, loads: Sequence[int], first_page: bytes) -> int:
        """The worker that may have the page cached."""
        index = self._seen_by.pop(first_page, None)
        if index is None:
            seen = [0] * len(loads)
            for known in self._seen_by.values():
                seen[known] += 1
            index = min(range(len(loads)), key=seen.__getitem__)
        self._seen_by[first_page] = index
        if len(self._seen_by) > _PAGES_REMEMBERED:
            self._seen_by.popitem(last=False)
        return index


def policies(routing: Routing, prefill_workers: int, seed: int) -> tuple[Policy, Policy]:
    """The policies for prefill and for decode."""
    match routing:
        case Routing.ROUND_ROBIN:
            return RoundRobin(), RoundRobin(stride=prefill_workers)
        case Routing.LOCKSTEP:
            return RoundRobin(), RoundRobin()
        case Routing.RANDOM:
            return RandomChoice(f"{seed}/prefill"), RandomChoice(f"{seed}/decode")
        case Routing.LEAST_LOAD:
            return LeastLoad(), LeastLoad()
        case Routing.CACHE_AWARE:
            return CacheAware(), CacheAware()

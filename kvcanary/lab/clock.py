"""The one clock of the lab, injectable, so that tests about time need no waiting."""

from __future__ import annotations

import asyncio
import heapq
import time
from itertools import count
from typing import Protocol


class Clock(Protocol):
    """Seconds of lab time."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of lab time."""
        ...


class WallClock:
    """Wall time, ``speed`` times as fast: ``speed=2`` halves every wait."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Scaled monotonic seconds."""
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Sleep ``seconds / speed`` of wall time."""
        await asyncio.sleep(seconds / self._speed)


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """Seconds that were advanced so far."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced by ``seconds``."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move time on, waking sleepers in order; each runs before the next one is woken."""
        end = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            if not woken.done():
                woken.set_result(None)
            await self._settle()
        self._now = end

    @staticmethod
    async def _settle() -> None:
        for _ in range(5):  # a woken task, the tasks it wakes, and what those start
            await asyncio.sleep(0)

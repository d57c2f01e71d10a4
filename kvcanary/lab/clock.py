"""The one clock of the lab, injectable, so that tests about time need no waiting."""

from __future__ import annotations

import asyncio
import heapq
import time
from itertools import count
from typing import Final, Protocol

_MOST_LATE_SECONDS: Final = 0.002
"""What sleepers may be late for a wall clock to catch up: timers come that late on an idle machine."""


class Clock(Protocol):
    """Seconds of lab time."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of lab time."""
        ...


_Sleeper = tuple[float, int, asyncio.Future[None]]
"""When it is due, in which order it came, and what wakes it."""


class WallClock:
    """Wall time, ``speed`` times as fast: ``speed=2`` halves every wait.

    What is due sooner is done sooner, with all that it sets off, however coarse the machine's timers are and
    however busy it is: a sleeper sees the moment for which it asked. Where the machine cannot keep up, this
    clock goes slower.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed
        self._origin = time.monotonic()
        self._order = count()
        self._sleepers: list[_Sleeper] = []
        self._frozen: float | None = None
        self._waker: asyncio.Task[None] | None = None
        self._sooner = asyncio.Event()

    def now(self) -> float:
        """Scaled seconds since the clock was made."""
        if self._frozen is not None:
            return self._frozen
        passed = self._passed()
        return min(passed, self._sleepers[0][0]) if self._sleepers else passed

    async def sleep(self, seconds: float) -> None:
        """Sleep ``seconds / speed`` of wall time, or longer."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sleeper = (self.now() + seconds, next(self._order), woken)
        heapq.heappush(self._sleepers, sleeper)
        if self._waker is None or self._waker.done():
            self._waker = asyncio.create_task(self._wake())
        elif self._sleepers[0] is sleeper:
            self._sooner.set()
        await woken

    def _passed(self) -> float:
        return (time.monotonic() - self._origin) * self._speed

    async def _wake(self) -> None:
        """Wake sleepers one by one, for as long as there are any."""
        self._sooner = asyncio.Event()
        while self._sleepers:
            due, _, woken = self._sleepers[0]
            late_seconds = (self._passed() - due) / self._speed
            if late_seconds < 0 and not woken.done():
                await self._wait(-late_seconds)
                continue
            heapq.heappop(self._sleepers)
            if not woken.done():
                self._origin += max(0.0, late_seconds - _MOST_LATE_SECONDS)
                self._frozen = due
                woken.set_result(None)
                await settle()
                self._frozen = None

    async def _wait(self, seconds: float) -> None:
        """So long, or until somebody has to be woken sooner."""
        self._sooner.clear()
        timer = asyncio.get_running_loop().call_later(seconds, self._sooner.set)
        await self._sooner.wait()
        timer.cancel()


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = count()
        self._sleepers: list[_Sleeper] = []

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
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = end


async def settle() -> None:
    """Let what was woken do what it does now."""
    for _ in range(5):  # a woken task, the tasks it wakes, and what those start
        await asyncio.sleep(0)

"""Keeps to what an API key may send in a minute."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

WINDOW_SECONDS = 61.0
"""A gateway's minute, and a second for what it counts later than it was sent."""
LEAST_PAUSE_SECONDS = 0.01
"""Clocks are rounded: a shorter pause might never end one."""


class Pacer:
    """A prompt starts when it fits, with all that was sent in the minute before, into what the key allows.

    Requests start in the order in which they asked.
    """

    def __init__(
        self,
        tokens_per_minute: int | None,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._allowed = tokens_per_minute
        self._now, self._sleep = now, sleep
        self._spent: deque[tuple[float, int]] = deque()
        self._turn = asyncio.Lock()

    async def wait(self, tokens: int) -> None:
        """Return when a request of ``tokens``, prompt and output, may start.

        One that is more than the key ever allows waits for a minute of its own.
        """
        if self._allowed is None:
            return
        tokens = min(tokens, self._allowed)
        async with self._turn:
            while (pause := self._pause(tokens, self._allowed)) is not None:
                await self._sleep(max(pause, LEAST_PAUSE_SECONDS))
            self._spent.append((self._now(), tokens))

    def _pause(self, tokens: int, allowed: int) -> float | None:
        """Seconds until enough of what was spent is a minute old; None when there is room now."""
        now = self._now()
        while self._spent and self._spent[0][0] + WINDOW_SECONDS <= now:
            self._spent.popleft()
        left = sum(amount for _, amount in self._spent)
        if left + tokens <= allowed:
            return None
        for at, amount in self._spent:
            left -= amount
            if left + tokens <= allowed:
                return at + WINDOW_SECONDS - now
        return WINDOW_SECONDS

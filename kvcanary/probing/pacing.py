"""Keeps to what each API key may send in a minute."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from time import monotonic

WINDOW_SECONDS = 61.0
"""A gateway's minute, and a second for what it counts later than it was sent."""
_Spent = deque[tuple[float, int]]
"""When, and how much."""
WORTH_SAYING_SECONDS = 5.0
"""A shorter pause is not told."""
LEAST_PAUSE_SECONDS = 0.01
"""Clocks are rounded: a shorter pause might never end one."""


class Pacer:
    """A prompt starts when it fits, with all that its key sent in the minute before, into what a key allows.

    Requests of one key start in the order in which they asked.
    """

    def __init__(
        self,
        tokens_per_minute: int | None,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._allowed = tokens_per_minute
        self._now, self._sleep = now, sleep
        self.on_pause: Callable[[float], None] = lambda _seconds: None
        """Is told how long a request waits."""
        self._spent: defaultdict[int, _Spent] = defaultdict(deque)
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def wait(self, tokens: int, key: int = 0) -> None:
        """Return when a request of ``tokens``, prompt and output, may start under the key of that number.

        One that is more than a key ever allows waits for a minute of its own.
        """
        if self._allowed is None:
            return
        tokens = min(tokens, self._allowed)
        spent = self._spent[key]
        async with self._turns[key]:
            while (pause := self._pause(spent, tokens, self._allowed)) is not None:
                if pause >= WORTH_SAYING_SECONDS:
                    self.on_pause(pause)
                await self._sleep(max(pause, LEAST_PAUSE_SECONDS))
            spent.append((self._now(), tokens))

    def _pause(self, spent: _Spent, tokens: int, allowed: int) -> float | None:
        """Seconds until enough of what was spent is a minute old; None when there is room now."""
        now = self._now()
        while spent and spent[0][0] + WINDOW_SECONDS <= now:
            spent.popleft()
        left = sum(amount for _, amount in spent)
        if left + tokens <= allowed:
            return None
        for at, amount in spent:
            left -= amount
            if left + tokens <= allowed:
                return at + WINDOW_SECONDS - now
        return WINDOW_SECONDS

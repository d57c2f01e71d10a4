"""Keeps to what an API key may send in a minute."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic


class Pacer:
    """Each prompt starts when the tokens of those before it have been paid for at the allowed rate."""

    def __init__(
        self,
        tokens_per_minute: int | None,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = tokens_per_minute
        self._now, self._sleep = now, sleep
        self._free_at = 0.0

    async def wait(self, tokens: int) -> None:
        """Return when a prompt of ``tokens`` may start."""
        if self._rate is None:
            return
        start = max(self._now(), self._free_at)
        self._free_at = start + 60.0 * tokens / self._rate
        if (pause := start - self._now()) > 0:
            await self._sleep(pause)

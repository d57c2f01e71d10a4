"""Waits for room: where others use the pool, a long prompt of ours must not be what fills it."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from kvcanary.probing.events import Listener
from kvcanary.probing.stopped import Stopped

POLL_SECONDS = 5.0
LONGEST_SECONDS = 600.0
"""After so long a wait the run gives up: it has measured what it has measured."""

PoolUse = Callable[[], Awaitable[float | None]]
"""Part of the fullest pool that is in use now; None where it is not told."""


class Backoff:
    """Waits before each long prompt while more than ``above`` of a pool is in use."""

    def __init__(
        self,
        use: PoolUse,
        above: float,
        listener: Listener,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._use, self._above, self._listener = use, above, listener
        self._now, self._sleep = now, sleep
        self._turn = asyncio.Lock()

    async def untold(self) -> str | None:
        """Why there will be no waiting; None where the pools' use can be read."""
        if await self._use() is not None:
            return None
        return (
            f"waiting while more than {self._above:.0%} of a pool is in use: not every worker tells its pool's "
            "use (let kvcanary read /v1/loads or /metrics of each)"
        )

    async def wait(self) -> None:
        """Return when there is room, or nobody tells. Raises Stopped after ``LONGEST_SECONDS``."""
        began: float | None = None
        async with self._turn:
            while (use := await self._use()) is not None and use > self._above:
                if began is None:
                    began = self._now()
                    self._listener.note("waiting for room: others use the pool")
                if self._now() - began >= LONGEST_SECONDS:
                    raise Stopped(
                        f"More than {self._above:.0%} of a pool has been in use for "
                        f"{LONGEST_SECONDS / 60:.0f} minutes ({use:.0%} now), so no long prompt was sent. "
                        "Run at a quieter hour, or from a suite with another `pause_above`."
                    )
                await self._sleep(POLL_SECONDS)

"""A deadline in the client's own time: what holds up this process is no fault of the server's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TICKS = 32
LONGEST_TICK_SECONDS = 1.0


@asynccontextmanager
async def own_time(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Like ``asyncio.timeout``, counted in ticks of this event loop.

    A loop that was held up (by other work, a busy machine, one that slept) has seen one tick pass, however
    long it was: nothing that the server sent meanwhile could be read.
    """
    async with asyncio.timeout(None) as deadline:

        async def count() -> None:
            left, tick = seconds, min(LONGEST_TICK_SECONDS, seconds / TICKS)
            while left > 0:
                await asyncio.sleep(min(tick, left))
                left -= tick
            deadline.reschedule(asyncio.get_running_loop().time())

        counter = asyncio.create_task(count())
        try:
            yield deadline
        finally:
            counter.cancel()

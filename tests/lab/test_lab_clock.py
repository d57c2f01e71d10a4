"""A clock that a test moves."""

import asyncio

from kvcanary.lab import ManualClock
from tests.lab.talk import run


def test_sleepers_wake_in_order_and_at_their_time() -> None:
    async def scene() -> list[tuple[str, float]]:
        clock, woken = ManualClock(), list[tuple[str, float]]()

        async def sleeper(name: str, seconds: float, times: int) -> None:
            for _ in range(times):
                await clock.sleep(seconds)
                woken.append((name, clock.now()))

        tasks = [asyncio.create_task(sleeper("a", 2.0, 2)), asyncio.create_task(sleeper("b", 3, 1))]
        await clock.advance(1.5)
        assert not woken
        await clock.advance(10)
        await asyncio.gather(*tasks)
        return woken

    assert run(scene()) == [("a", 2.0), ("b", 3.0), ("a", 4.0)]

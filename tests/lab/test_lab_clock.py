"""Clocks: one that a test moves, and one that goes by itself."""

import asyncio
import time

from kvcanary.lab import ManualClock, WallClock
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


def test_what_is_due_sooner_is_done_sooner_however_coarse_the_timers_are() -> None:
    """All of these steps are over at the machine's next look at the time."""

    async def scene() -> list[tuple[str, int]]:
        clock, woken = WallClock(), list[tuple[str, int]]()

        async def sleeper(name: str, seconds: float, times: int) -> None:
            for at in range(times):
                await clock.sleep(seconds)
                woken.append((name, at))

        await clock.sleep(1e-3)  # now both begin at the same moment
        await asyncio.gather(sleeper("long", 4.5e-9, 1), sleeper("short", 1e-9, 6))
        return woken

    shorts = [("short", at) for at in range(6)]
    assert run(scene()) == [*shorts[:4], ("long", 0), *shorts[4:]]


def test_a_machine_that_is_held_up_stops_the_clock() -> None:
    async def scene() -> float:
        clock = WallClock(speed=1000)
        began = clock.now()
        task = asyncio.create_task(clock.sleep(1.0))
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 - that is the point
        await task
        return clock.now() - began

    assert run(scene()) < 50


def test_a_sleeper_that_is_cancelled_holds_up_nobody() -> None:
    async def scene() -> None:
        clock = WallClock(speed=1e6)
        first, second = (asyncio.create_task(clock.sleep(n)) for n in (1.0, 2.0))
        await asyncio.sleep(0)
        first.cancel()
        await second
        await clock.sleep(3.0)

    run(scene())

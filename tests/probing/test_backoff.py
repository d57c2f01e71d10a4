"""Backing off: no long prompt while others need the pool, and not for ever."""

import asyncio
from collections.abc import Sequence

import pytest

from kvcanary.probing.backoff import LONGEST_SECONDS, POLL_SECONDS, Backoff
from kvcanary.probing.events import Silence
from kvcanary.probing.stopped import Stopped


class Notes(Silence):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


class Pool:
    """A pool whose use is a given series, the last value for ever; time passes only in sleep."""

    def __init__(self, series: Sequence[float | None]) -> None:
        self.series, self.time = list(series), 0.0
        self.listener = Notes()

    async def use(self) -> float | None:
        return self.series.pop(0) if len(self.series) > 1 else self.series[0]

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)

    def backoff(self, above: float = 0.8) -> Backoff:
        return Backoff(self.use, above, self.listener, lambda: self.time, self.sleep)


def test_with_room_nobody_waits() -> None:
    pool = Pool([0.8])
    asyncio.run(pool.backoff().wait())
    assert (pool.time, pool.listener.said) == (0.0, [])


def test_it_waits_until_there_is_room_and_says_so_once() -> None:
    pool = Pool([0.81, 0.99, 0.9, 0.3])
    asyncio.run(pool.backoff().wait())
    assert pool.time == 3 * POLL_SECONDS
    assert pool.listener.said == ["waiting for room: others use the pool"]


def test_it_gives_up_and_says_what_to_do() -> None:
    pool = Pool([0.95])
    with pytest.raises(Stopped, match=r"95% now.*quieter hour"):
        asyncio.run(pool.backoff().wait())
    assert pool.time == LONGEST_SECONDS


def test_what_nobody_tells_is_said_and_keeps_nobody_waiting() -> None:
    pool = Pool([None])
    backoff = pool.backoff()
    untold = asyncio.run(backoff.untold())
    assert untold
    assert "more than 80% of a pool" in untold
    asyncio.run(backoff.wait())
    assert pool.time == 0.0
    assert asyncio.run(Pool([0.5]).backoff().untold()) is None


def test_one_looks_at_a_time() -> None:
    """Many that wait at once do not ask the workers many times."""
    pool = Pool([0.9, 0.9, 0.1])

    async def several() -> None:
        backoff = pool.backoff()
        await asyncio.gather(*(backoff.wait() for _ in range(5)))

    asyncio.run(several())
    assert pool.time == 2 * POLL_SECONDS
    assert pool.listener.said == ["waiting for room: others use the pool"]

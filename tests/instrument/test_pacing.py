"""A key's tokens per minute: no gateway that counts a sliding minute ever has to say 429."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary import run as run_module
from kvcanary.lab import Clock, WallClock
from kvcanary.probing.buying import Budget
from kvcanary.probing.pacing import WINDOW_SECONDS, Pacer
from kvcanary.verdict.claims import ExitCode
from tests.instrument.lab_runs import Setup, ran


class StandingClock:
    """Time that only passes while somebody sleeps, and how long that was."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds
        await asyncio.sleep(0)


def starts(allowed: int | None, sizes: Sequence[int]) -> list[float]:
    """When each of the requests that ask at once may start, in seconds from now."""
    clock = StandingClock()
    begun: list[float] = []

    async def one(pacer: Pacer, size: int) -> None:
        await pacer.wait(size)
        begun.append(clock.now() - 1_000.0)

    async def all_of_them() -> None:
        pacer = Pacer(allowed, clock.now, clock.sleep)
        async with asyncio.TaskGroup() as group:
            for size in sizes:
                group.create_task(one(pacer, size))

    asyncio.run(all_of_them())
    return begun


@given(st.integers(1, 1_000), st.lists(st.integers(0, 1_500), max_size=20))
def test_no_minute_ever_holds_more_than_the_key_allows(allowed: int, sizes: list[int]) -> None:
    times = starts(allowed, sizes)
    assert len(times) == len(sizes)
    assert times == sorted(times), "in the order in which they asked"
    for at in times:
        minute = [s for t, s in zip(times, sizes, strict=True) if at <= t < at + 60]
        assert sum(min(s, allowed) for s in minute) <= allowed


def test_what_fits_does_not_wait() -> None:
    assert starts(100, [40, 40, 20]) == [0, 0, 0]
    assert starts(None, [10**9, 10**9]) == [0, 0]


def test_the_next_waits_until_enough_of_the_minute_is_over() -> None:
    assert starts(100, [90, 90, 10]) == [0, WINDOW_SECONDS, WINDOW_SECONDS]


def test_more_than_the_key_ever_allows_waits_for_a_minute_of_its_own() -> None:
    assert starts(100, [1, 500, 1]) == [0, WINDOW_SECONDS, 2 * WINDOW_SECONDS]


class Hurried:
    """The lab's clock, and the run's: a minute is over in half a second."""

    clock: Clock = WallClock(120.0)


@pytest.mark.parametrize(("tokens_per_minute", "waits"), [(12_000, True), (1_000_000, False)])
def test_a_whole_run_within_a_key_s_limit(
    tokens_per_minute: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab's gateway counts prompts and the outputs asked for, calibration and all."""
    paused: list[float] = []

    def paced(allowed: int | None) -> Pacer:
        async def sleep(seconds: float) -> None:
            paused.append(seconds)
            await Hurried.clock.sleep(seconds)

        return Pacer(allowed, Hurried.clock.now, sleep)

    monkeypatch.setattr(run_module, "Pacer", paced)
    setup = Setup(
        habits=(f"tpm={tokens_per_minute}",),
        budget=Budget(tokens_per_minute=tokens_per_minute),
    )
    run = ran(setup, lambda: Hurried.clock)
    assert {e.reason for e in run.record.exchanges} <= {"complete", "released"}
    assert run.code is ExitCode.PASS
    assert bool(paused) is waits

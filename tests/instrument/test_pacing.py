"""A key's tokens per minute: no gateway that counts a sliding minute ever has to say 429."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary import run as run_module
from kvcanary.lab.gateway import OverRate, TokensPerMinute
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


def test_a_long_wait_is_told() -> None:
    told: list[float] = []

    async def all_of_them() -> None:
        clock = StandingClock()
        pacer = Pacer(100, clock.now, clock.sleep)
        pacer.on_pause = told.append
        for size in (90, 10, 90):
            await pacer.wait(size)

    asyncio.run(all_of_them())
    assert told == [WINDOW_SECONDS]


def test_keys_do_not_wait_for_each_other() -> None:
    async def all_of_them() -> list[tuple[int, float]]:
        clock, begun = StandingClock(), []
        pacer = Pacer(100, clock.now, clock.sleep)
        for key in (0, 1, 0, 1, 2):
            await pacer.wait(60, key)
            begun.append((key, clock.now() - 1_000))
        return begun

    assert asyncio.run(all_of_them()) == [
        (0, 0),
        (1, 0),
        (0, WINDOW_SECONDS),
        (1, WINDOW_SECONDS),
        (2, WINDOW_SECONDS),
    ]


class Shared:
    """The clock of the lab and of the run: it stands still but for the pacer, which moves it on when all that
    it let go has come to the gateway."""

    def __init__(self) -> None:
        self.time = 0.0
        self.begun = self.counted = self.pauses = 0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        """The lab at work takes none of this time."""
        await asyncio.sleep(seconds / 50)

    async def pause(self, seconds: float) -> None:
        """The pacer waits."""
        while self.counted < self.begun:  # noqa: ASYNC110 - both are counted in this very loop
            await asyncio.sleep(0)
        self.time += seconds
        self.pauses += 1


class Counted(Pacer):
    """Counts what it lets go."""

    def __init__(self, allowed: int | None, clock: Shared) -> None:
        super().__init__(allowed, clock.now, clock.pause)
        self._clock = clock

    async def wait(self, tokens: int, key: int = 0) -> None:
        await super().wait(tokens, key)
        self._clock.begun += 1


def test_a_whole_run_within_a_key_s_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's gateway counts prompts and the outputs asked for, calibration and all."""
    clock = Shared()
    charge = TokensPerMinute.charge

    def counted(gateway: TokensPerMinute, key: str, tokens: int) -> OverRate | None:
        clock.counted += 1
        return charge(gateway, key, tokens)

    monkeypatch.setattr(TokensPerMinute, "charge", counted)
    monkeypatch.setattr(run_module, "Pacer", lambda allowed: Counted(allowed, clock))
    run = ran(Setup(habits=("tpm=12000",), budget=Budget(tokens_per_minute=12_000)), lambda: clock)
    assert {e.reason for e in run.record.exchanges} <= {"complete", "released"}
    assert run.code is ExitCode.PASS
    assert clock.pauses
    assert clock.begun == clock.counted

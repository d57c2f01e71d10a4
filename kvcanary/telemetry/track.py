"""Readings of one rank over time, in bounded memory: a long run has longer steps, and keeps its extremes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kvcanary.engines.gauges import Level
from kvcanary.record.series import MAX_STEPS, Series


@dataclass(slots=True)
class _Step:
    at_seconds: float
    most: Level
    least_tokens: int | None

    def merge(self, later: "_Step") -> None:
        self.at_seconds = later.at_seconds
        self.least_tokens = _pick(min, self.least_tokens, later.least_tokens)
        one, other = self.most, later.most
        self.most = Level(
            rank=one.rank,
            used_tokens=_pick(max, one.used_tokens, other.used_tokens),
            running=_pick(max, one.running, other.running),
            queued=_pick(max, one.queued, other.queued),
            # a counter: the later one, which is lower where the process began anew
            failures=one.failures if other.failures is None else other.failures,
        )


@dataclass(slots=True)
class Track:
    """What was read of one rank. Readings come in the order of their time."""

    max_steps: int = MAX_STEPS
    _steps: list[_Step] = field(default_factory=list)
    _readings_per_step: int = 1
    _in_last: int = 0
    _pool_tokens: int | None = None
    _last: Level | None = None

    def add(self, at_seconds: float, level: Level) -> None:
        """One more reading."""
        step = _Step(at_seconds, level, level.used_tokens)
        if self._steps and self._in_last < self._readings_per_step:
            self._steps[-1].merge(step)
            self._in_last += 1
        else:
            self._steps.append(step)
            self._in_last = 1
        if len(self._steps) > self.max_steps:
            self._thin()
        self._last = level
        self._pool_tokens = level.pool_tokens or self._pool_tokens

    def _thin(self) -> None:
        """Steps of twice the length."""
        steps, odd = self._steps, len(self._steps) % 2
        for first, second in zip(steps[::2], steps[1::2], strict=False):
            first.merge(second)
        self._steps = steps[::2]
        self._in_last += 0 if odd else self._readings_per_step
        self._readings_per_step *= 2

    def series(self, worker: str, source: str, unanswered: int = 0) -> Series:
        """All of it as it is recorded."""
        steps = self._steps
        return Series(
            worker=worker,
            source=source,
            pool_tokens=self._pool_tokens,
            at_seconds=tuple(round(step.at_seconds, 3) for step in steps),
            used_tokens=_column(step.most.used_tokens for step in steps),
            least_tokens=_column(step.least_tokens for step in steps),
            running=_column(step.most.running for step in steps),
            queued=_column(step.most.queued for step in steps),
            failures=_column(step.most.failures for step in steps),
            last_tokens=None if self._last is None else self._last.used_tokens,
            unanswered=unanswered,
        )


def _column(values: Iterable[int | None]) -> tuple[int | None, ...]:
    """A column of a series: empty where nothing was told at any time."""
    column = tuple(values)
    return column if any(value is not None for value in column) else ()


def _pick(which: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return which(one, other)

"""Readings over time: bounded, and no extreme is lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kvcanary.engines.gauges import Level
from kvcanary.record.series import Series
from kvcanary.telemetry.track import Track

COUNTS = st.none() | st.integers(0, 1_000)
LEVELS = st.builds(
    Level,
    rank=st.none(),
    pool_tokens=st.just(1_000),
    used_tokens=COUNTS,
    running=COUNTS,
    queued=COUNTS,
    failures=COUNTS,
)


def tracked(levels: list[Level], max_steps: int) -> Series:
    track = Track(max_steps)
    for number, level in enumerate(levels):
        track.add(float(number), level)
    return track.series("D1", "test")


@given(st.lists(LEVELS, max_size=60), st.integers(2, 9))
def test_extremes_and_the_end_are_kept_in_few_steps(levels: list[Level], max_steps: int) -> None:
    series = tracked(levels, max_steps)
    assert len(series.at_seconds) <= max_steps
    for column, field in (
        ("used_tokens", "used_tokens"),
        ("running", "running"),
        ("queued", "queued"),
    ):
        told = [v for v in (getattr(level, field) for level in levels) if v is not None]
        kept = [v for v in getattr(series, column) if v is not None]
        assert max(kept, default=None) == max(told, default=None)
    used = [level.used_tokens for level in levels if level.used_tokens is not None]
    least = [v for v in series.least_tokens if v is not None]
    assert min(least, default=None) == min(used, default=None)
    failures = [level.failures for level in levels if level.failures is not None]
    assert [v for v in series.failures if v is not None][-1:] == failures[-1:]
    assert series.last_tokens == (levels[-1].used_tokens if levels else None)
    assert list(series.at_seconds[-1:]) == ([float(len(levels) - 1)] if levels else [])
    assert list(series.at_seconds) == sorted(series.at_seconds)
    assert Series.model_validate_json(series.model_dump_json()) == series


@given(st.integers(0, 200), st.integers(1, 5))
def test_steps_are_of_one_length_but_the_last(readings: int, half: int) -> None:
    series = tracked([Level(None, used_tokens=n) for n in range(readings)], 2 * half)
    bounds = [-1.0, *series.at_seconds]
    lengths = [later - earlier for earlier, later in pairwise(bounds)]
    assert len(set(lengths[:-1])) <= 1
    if len(lengths) > 1:
        assert lengths[-1] <= lengths[0]
        assert lengths[0] <= max(1, 2 * readings / (2 * half))


def test_figures_of_a_series() -> None:
    series = tracked([Level(None, 9, 5, 1, 2, 3), Level(None, 9, 7, 4, 0, 8)], 8)
    peaks = (series.peak_tokens, series.peak_running, series.peak_queued, series.new_failures)
    assert peaks == (7, 4, 2, 5)
    nothing = tracked([], 8)
    assert nothing == Series(worker="D1", source="test")
    peaks = (nothing.peak_tokens, nothing.peak_running, nothing.peak_queued, nothing.new_failures)
    assert peaks == (None,) * 4


def test_columns_of_different_lengths_are_no_series() -> None:
    with pytest.raises(ValidationError, match="equal length"):
        Series(worker="D1", source="test", at_seconds=(1, 2), running=(1,))

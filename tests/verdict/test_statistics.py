"""Clopper-Pearson against figures known from elsewhere, and against its own definition."""

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.verdict.statistics import upper_bound


@pytest.mark.parametrize(
    ("bad", "measured", "bound"),
    [
        (0, 1, 0.95),
        (0, 3, 0.6316),  # 1 - 0.05 ** (1 / 3)
        (0, 10, 0.2589),
        (0, 59, 0.0495),  # the usual "59 of 59" for 95/95
        (0, 299, 0.00997),
        (1, 10, 0.3942),
        (2, 20, 0.2826),
        (5, 5, 1.0),
    ],
)
def test_known_values(bad: int, measured: int, bound: float) -> None:
    assert upper_bound(bad, measured) == pytest.approx(bound, abs=5e-5)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
@settings(deadline=None, derandomize=True)
def test_at_the_bound_so_few_have_odds_of_five_percent(case: tuple[int, int]) -> None:
    bad, measured = case
    rate = upper_bound(bad, measured)
    tail = sum(comb(measured, k) * rate**k * (1 - rate) ** (measured - k) for k in range(bad + 1))
    assert tail == pytest.approx(0.05, rel=1e-6)
    assert bad / measured < rate <= 1.0
    assert upper_bound(bad, measured) < upper_bound(bad + 1, measured)
    assert upper_bound(bad, measured) > upper_bound(bad, measured + 1)


@pytest.mark.parametrize(("bad", "measured"), [(0, 0), (1, 0), (-1, 3), (4, 3)])
def test_no_bound_from_nothing(bad: int, measured: int) -> None:
    with pytest.raises(ValueError, match="no bound"):
        upper_bound(bad, measured)

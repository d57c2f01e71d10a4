"""Exact tests: whatever the samples, odds as counted by hand over all orders."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kvcanary.detect.exact import later, smaller

samples = st.lists(st.integers(0, 6), min_size=1, max_size=5)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8, unique=True), st.data())
def test_smaller_counts_the_orders_that_are_as_telling(
    values: list[int], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(values) - 1))
    some, others = values[:size], values[size:]

    def above(chosen: list[int], rest: list[int]) -> int:
        return sum(a >= b for a in chosen for b in rest)

    seen = above(some, others)
    orders = [
        above(list(chosen), [v for v in values if v not in chosen])
        for chosen in combinations(values, size)
    ]
    assert abs(smaller(some, others) - sum(o <= seen for o in orders) / len(orders)) < 1e-12


@given(samples, samples)
def test_odds_are_odds(some: list[int], others: list[int]) -> None:
    assert 0 < smaller(some, others) <= 1


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_later_counts_how_hits_can_fall(early: int, late: int, data: st.DataObject) -> None:
    before, after = data.draw(st.integers(0, early)), data.draw(st.integers(0, late))
    hits = before + after
    places = list(combinations(range(early + late), hits))
    as_late = sum(sum(p >= early for p in place) >= after for place in places)
    assert abs(later(before, early, after, late) - as_late / len(places)) < 1e-12


def test_nothing_to_compare_is_no_evidence() -> None:
    assert smaller([], [1]) == smaller([1], []) == later(0, 0, 3, 3) == 1.0

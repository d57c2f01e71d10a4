"""What is said of the fill."""

import pytest

from kvcanary.probing.high_water import high_water


def test_it_is_measured_where_the_pool_holds_nothing_but_the_victims() -> None:
    water = high_water(1_000_000, idle_tokens=0, used_tokens=1_000_640, decoders=("D1",))
    assert (water.tokens, water.how, water.decoders) == (1_000_640, "measured", ("D1",))


@pytest.mark.parametrize(
    ("idle", "used"),
    [
        (None, None),
        (0, None),
        (None, 1_000_000),
        (200_000, 1_200_000),
        (0, 1_200_000),
        (200_000, 1_000_000),
    ],
    ids=["nothing told", "no use", "no idle", "traffic", "traffic came", "traffic went"],
)
def test_with_other_traffic_or_no_figure_it_is_what_was_sent(
    idle: int | None, used: int | None
) -> None:
    water = high_water(1_000_000, idle, used, ())
    assert (water.tokens, water.how) == (1_000_000, "estimated")


def test_victims_that_ended_early_do_not_count_when_the_pool_says_so() -> None:
    assert high_water(1_000_000, 0, 400_000, ()).tokens == 400_000

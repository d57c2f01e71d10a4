"""Answers that stop in the middle of their label: when a cut is proven, and when it may be the model."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.detect import clipped
from kvcanary.detect.look import look_of
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.look import Look
from kvcanary.verdict.findings import Finding, Severity
from tests.builders import calibration, exchange
from tests.canary.scene import Scene

PROMPT = Scene().prompt(1)
LABEL = PROMPT.label(PROMPT.asked)
CALM = calibration(*range(90, 99))


def cut(number: int, **fields: Any) -> Exchange:
    return exchange(number, **{"look": Look(cut_in_label=True), "completion_tokens": 8, **fields})


def told(*exchanges: Exchange, calm: list[Exchange] = CALM) -> list[Finding]:
    return list(clipped.findings([*calm, *exchanges]))


@pytest.mark.parametrize("before", ["", "KVC-", "Sure, the label is: KVC-", "**KVC-KVC-"])
@given(kept=st.integers(0, 16))
@settings(deadline=None, derandomize=True)
def test_a_label_that_ends_early_is_cut_whatever_stands_before_it(before: str, kept: int) -> None:
    said = look_of(f"{before}{LABEL[:kept]}", PROMPT).cut_in_label
    assert said is (4 <= kept < 16 and (before == "" or "KVC" in before))


@pytest.mark.parametrize(
    "text",
    [
        f"KVC-{LABEL} and once more: KVC-{LABEL[:6]}",
        f"KVC-{LABEL[:5]}Q9 and",
        f"KVC-{LABEL[:9]} Let me know",
        "KVC-",
        "",
    ],
    ids=["quoted", "slipped", "goes on", "nothing of it", "empty"],
)
def test_what_is_not_cut_in_the_label(text: str) -> None:
    assert not look_of(text, PROMPT).cut_in_label


def test_what_cuts_all_over_after_one_count_of_tokens_is_proven() -> None:
    (found,) = told(*(cut(n, group=f"g{n % 3}") for n in range(16)))
    assert (found.rule, found.severity) == ("output/clipped", Severity.ACCOUNTING)
    assert found.exchanges == tuple(range(16))


def test_what_cuts_where_good_conditions_are_whole_is_proven_by_that() -> None:
    many = [cut(n, tokens=1_500, completion_tokens=5 + n) for n in range(12)]
    (found,) = told(*many, calm=calibration(*range(60, 99)))
    assert found.rule == "output/clipped"


def test_a_model_that_stops_by_itself_is_a_warning() -> None:
    everywhere = calibration(*range(60, 80), look=Look(cut_in_label=True), completion_tokens=9)
    spread = [e.model_copy(update={"completion_tokens": 5 + e.number % 4}) for e in everywhere]
    (found,) = told(
        *(cut(n, completion_tokens=5 + n % 4) for n in range(20)), calm=[*spread, *CALM]
    )
    assert (found.rule, found.severity) == ("output/stopped-in-label", Severity.DEGRADED)


@pytest.mark.parametrize(
    "fields",
    [{"text_of": 7}, {"completion_tokens": None}],
    ids=["one text again and again", "no usage"],
)
def test_what_says_nothing_of_the_count_proves_nothing(fields: dict[str, Any]) -> None:
    same = [cut(n, purpose=Purpose.RETURN, **fields) for n in range(16)]
    assert [f.rule for f in told(*same)] == ["output/stopped-in-label"]


def test_two_are_chance_a_length_is_honest_and_what_all_do_is_how_it_answers() -> None:
    assert told(cut(1), cut(2)) == []
    assert told(*(cut(n, finish_reason="length") for n in range(16))) == []
    assert told(*(cut(n) for n in range(16)), calm=[]) == []


def test_the_odds_hold_for_two_counts_alike() -> None:
    """The worst a model can do by itself: two counts, each half the time."""
    from scipy.stats import binom

    for most in range(8, 16):
        worst = 2 * float(binom.sf(most - 1, 15, 0.5))
        counts = [cut(n, completion_tokens=8 if n < most else 9) for n in range(15)]
        assert clipped.odds_of_one_count(counts) == pytest.approx(min(1.0, worst))

"""What a budget buys: never beyond it, the most danger per token first, and nothing is left out in silence."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.prompt import Position
from kvcanary.deployment.facts import Role
from kvcanary.probing.buying import (
    NO_LIMIT,
    Budget,
    at_most,
    buy,
    charged,
    plan_note,
    plan_price,
    tokens_allowed,
)
from kvcanary.probing.grammar import load_probe
from kvcanary.probing.plan import make_plan
from kvcanary.probing.planned import Plan, Planned, Stage
from kvcanary.probing.sizing import Calibration, FirstToken
from kvcanary.record.exchange import Purpose
from tests.builders import facts, worker

TIMED = Calibration(
    base_tokens=400,
    chapter_tokens=540.0,
    fitted_tokens=9_000,
    output_token_seconds=0.01,
    first_token=FirstToken(
        base_seconds=0.1,
        per_token_seconds=1e-4,
        low_per_token_seconds=1e-4,
        high_per_token_seconds=1e-4,
        longest_tokens=9_000,
        samples=5,
    ),
)
UNTIMED = TIMED.model_copy(update={"first_token": None})


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to five stages of every kind, some with bystanders; every exchange has a number of its own."""
    stages = []
    number = 0
    for index in range(draw(st.integers(0, 5))):
        hold = draw(st.booleans())
        purposes = [Purpose.FILL if hold else Purpose.READER] * draw(st.integers(1, 5))
        if not hold:
            purposes += [Purpose.BYSTANDER] * draw(st.integers(0, 2))
        exchanges = []
        for purpose in purposes:
            number += 1
            exchanges.append(
                Planned(
                    number=number,
                    probe="p",
                    group=f"g{index}",
                    purpose=purpose,
                    tenant=3,
                    tokens=draw(st.integers(1, 10_000)),
                    asked=Position.END,
                    max_tokens=draw(st.integers(1, 500)),
                )
            )
        danger = draw(st.floats(0.1, 10))
        stages.append(Stage(f"g{index}", tuple(exchanges), 2, hold, danger))
    return Plan(tuple(stages), ("known: already left out",))


budgets = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 60_000),
    seconds=st.none() | st.floats(0, 100),
    tokens_per_minute=st.none() | st.integers(1, 30_000),
)


@given(plans(), budgets, st.sampled_from([TIMED, UNTIMED]))
def test_never_beyond_the_budget_and_everything_is_accounted_for(
    wanted: Plan, budget: Budget, calibration: Calibration
) -> None:
    bought = buy(wanted, budget, calibration)
    most = sum(at_most(e.tokens, calibration) for e in bought.exchanges)
    assert budget.tokens is None or most <= budget.tokens
    price = plan_price(bought, calibration, NO_LIMIT)
    if budget.seconds is not None and price.seconds is not None:
        assert price.seconds <= budget.seconds * (1 + 1e-9)
    allowed = budget.tokens_per_minute
    assert allowed is None or all(charged([e]) <= allowed for e in bought.exchanges)
    # What is bought was wanted, once, in the same order.
    order = [e.number for e in wanted.exchanges]
    numbers = [e.number for e in bought.exchanges]
    assert sorted(numbers, key=order.index) == numbers
    assert max(Counter(numbers).values(), default=1) == 1
    # What is not is named, stratum by stratum, with how many.
    assert bought.skipped[0] == "known: already left out"
    for stage in wanted.stages:
        kept = {e.number for s in bought.stages if s.group == stage.group for e in s.exchanges}
        missing = [
            e
            for e in stage.exchanges
            if e.number not in kept and e.purpose is not Purpose.BYSTANDER
        ]
        said = [note for note in bought.skipped if note.startswith(f"{stage.group}: ")]
        assert bool(missing) is bool(said)
        if missing:
            assert f"{len(missing)} of its requests" in said[0]
        assert not stage.hold or len(kept) in (0, len(stage.exchanges)), "victims come together"


@given(plans())
def test_without_a_limit_everything_is_bought(wanted: Plan) -> None:
    assert buy(wanted, NO_LIMIT, TIMED) == wanted


@given(plans(), st.integers(0, 60_000), st.integers(0, 60_000))
def test_a_larger_budget_never_buys_a_less_dangerous_first_answer(
    wanted: Plan, one: int, other: int
) -> None:
    less, more = sorted((one, other))
    small = buy(wanted, Budget(tokens=less), TIMED)
    large = buy(wanted, Budget(tokens=more), TIMED)
    assert most_danger(wanted, large) >= most_danger(wanted, small)
    if more >= sum(at_most(e.tokens, TIMED) for e in wanted.exchanges):
        assert large.exchanges == wanted.exchanges


def most_danger(wanted: Plan, bought: Plan) -> float:
    """Of the stages whose first reader was bought."""
    kept = {e.number for e in bought.exchanges}
    read = [s for s in wanted.stages if not s.hold and s.exchanges[0].number in kept]
    return max((s.danger for s in read), default=0.0)


def stage(group: str, danger: float, tokens: int, count: int, first: int) -> Stage:
    exchanges = tuple(
        Planned(first + i, "p", group, Purpose.READER, 3, tokens, Position.END, 10)
        for i in range(count)
    )
    return Stage(group, exchanges, 2, danger=danger)


def test_one_answer_of_each_dangerous_length_comes_before_a_second_of_any() -> None:
    wanted = Plan((stage("window", 4, 1_000, 3, 0), stage("edge", 3, 1_000, 3, 10)), ())
    bought = buy(wanted, Budget(tokens=2_999), TIMED)
    assert [e.group for e in bought.exchanges] == ["window", "edge"]
    bought = buy(wanted, Budget(tokens=3_030), TIMED)
    assert [e.group for e in bought.exchanges] == ["window", "window", "edge"]


def test_after_the_most_dangerous_answer_danger_is_bought_by_the_token() -> None:
    """Twice the danger for ten times the price waits."""
    window, half, quarter = (
        stage("window", 4, 1_000, 1, 0),
        stage("half", 2, 1_000, 1, 10),
        stage("quarter", 1, 100, 1, 20),
    )
    bought = buy(Plan((window, half, quarter), ()), Budget(tokens=2_050), TIMED)
    assert [e.group for e in bought.exchanges] == ["window", "quarter"]
    assert bought.skipped == ("half: 1 of its requests not bought: beyond the budget",)


def test_the_incident_s_least_useful_plan() -> None:
    """A fill and one request in the window, at the size at which it happened, where the pools are known."""
    incident = facts(
        worker(Role.PREFILL, 681_280, context=1_048_576),
        worker(Role.DECODE, 2_043_904, context=1_048_576),
        context=1_048_576,
    )
    wanted = make_plan([load_probe("oversize")], incident, 1_048_576, TIMED, 4, 0)
    bought = buy(wanted, Budget(tokens=3_000_000), TIMED)
    assert {"victims", "window"} <= {s.group for s in bought.stages}
    assert bought.tokens <= 3_000_000
    note = plan_note(bought, TIMED, NO_LIMIT, ())
    assert note.prompt_tokens == bought.tokens
    assert note.requests == len(bought.exchanges)
    assert sum(s.prompt_tokens for s in note.stages) == note.prompt_tokens


def test_a_key_s_minute_rules_out_what_never_passes_and_makes_the_rest_longer() -> None:
    wanted = Plan((stage("edge", 3, 1_000, 2, 0), stage("short", 1, 100, 1, 10)), ())
    bought = buy(wanted, Budget(tokens_per_minute=1_000), TIMED)
    assert [e.group for e in bought.exchanges] == ["short"]
    assert "more than the key may send in a minute" in bought.skipped[0]
    paced = plan_price(wanted, UNTIMED, Budget(tokens_per_minute=1_010))
    assert paced.seconds == pytest.approx(60 * 2_130 / 1_010)


@pytest.mark.parametrize(
    ("given_tokens", "expression", "expected"),
    [
        (None, None, None),
        (5, "3 * context", 5),
        (None, "3 * context", 300),
        (None, "min(150, 3 * context)", 150),
        (None, "pool", None),
    ],
)
def test_a_suite_s_own_budget_holds_where_none_is_given(
    given_tokens: int | None, expression: str | None, expected: int | None
) -> None:
    assert tokens_allowed(Budget(tokens=given_tokens), expression, 100) == expected

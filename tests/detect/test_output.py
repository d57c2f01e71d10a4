"""Traits that set a stratum apart from good conditions: each is told, and a habit never is."""

from typing import Any

import pytest

from kvcanary.detect import bystanders, cached, identity, output, pool_return
from kvcanary.record.exchange import Answerer, Exchange, Purpose
from kvcanary.record.look import Look
from kvcanary.record.window import Window
from kvcanary.verdict.claims import Status
from kvcanary.verdict.findings import Finding, Severity
from kvcanary.verdict.judge import judge
from tests.builders import calibration, exchange, healthy, readers, sound, worker

CONTEXT = 65_536
TRAITS: dict[str, dict[str, Any]] = {
    "output/degenerate": {"look": Look(words=1, looping=0.9)},
    "output/unexplained-text": {"look": Look(words=20, unexplained=15)},
    "output/empty-answer": {"answer_characters": 0},
    "output/cut-short": {"finish_reason": "length", "completion_tokens": 5},
    "accounting/cached-unseen": {"cached_tokens": 5_000},
    "identity/mixed-response": {"answerer": Answerer(mixed=True)},
}


def found(exchanges: list[Exchange]) -> list[Finding]:
    return [
        *output.findings(exchanges, CONTEXT),
        *cached.findings(exchanges),
        *(f for f in identity.findings(exchanges, None, None)),
    ]


def control(**fields: Any) -> list[Exchange]:
    return readers(20, "control", purpose=Purpose.CONTROL, tokens=8_000, **fields)


@pytest.mark.parametrize("rule", TRAITS)
def test_a_stratum_that_is_set_apart_is_told_of(rule: str) -> None:
    sent = [*calibration(*range(9)), *control(), *readers(30, **TRAITS[rule])]
    assert [(f.rule, f.severity, f.exchanges) for f in found(sent)] == [
        (rule, Severity.DEGRADED, (30, 31, 32))
    ]


@pytest.mark.parametrize("rule", TRAITS)
def test_one_answer_is_chance_and_what_the_control_does_is_a_habit(rule: str) -> None:
    odd = TRAITS[rule]
    one = [exchange(30, **odd), *readers(31)]
    assert found([*calibration(*range(9)), *control(), *one]) == []
    habit = [*control()[:2], exchange(22, group="control", purpose=Purpose.CONTROL, **odd)]
    assert found([*calibration(*range(9)), *habit, *readers(30, **odd)]) == []
    if rule != "accounting/cached-unseen":  # short prompts have little that could be cached
        assert found([*calibration(*range(9), **odd), *control(), *readers(30, **odd)]) == []


@pytest.mark.parametrize("rule", TRAITS)
def test_what_cannot_be_compared_is_not_told_of(rule: str) -> None:
    odd = TRAITS[rule]
    assert found([*calibration(0, 1, 2), *readers(30, **odd)]) == [], "too little to compare with"
    long = readers(30, tokens=60_000, **odd)
    assert found([*calibration(*range(9)), *control(), *long]) == [], "much longer than the control"
    assert found(readers(30, **odd)) == []


@pytest.mark.parametrize("rule", TRAITS)
def test_it_keeps_its_claim_from_passing(rule: str) -> None:
    sent = [
        *calibration(*range(9)),
        *readers(10, "edge", tokens=65_000),
        *readers(20, "control", tokens=60_000, purpose=Purpose.CONTROL),
        *readers(30, "odd", tokens=62_000, **TRAITS[rule]),
    ]
    judged = judge(healthy(exchanges=sent), ())
    assert [f.rule for f in judged.findings] == [rule]
    name = "accounting" if rule.startswith("accounting") else "ownership"
    claim = next(c for c in judged.verdict.claims if c.name == name)
    assert claim.status is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    "fields",
    [
        {"finish_reason": "length", "completion_tokens": 160},
        {"finish_reason": "length", "completion_tokens": None},
        {"finish_reason": "stop", "completion_tokens": 5},
        {"finish_reason": "length", "completion_tokens": 5, "tokens": CONTEXT - 6},
    ],
)
def test_an_honest_length_is_not_cut_short(fields: dict[str, Any]) -> None:
    assert not output.is_cut_short(exchange(1, **fields), CONTEXT)
    assert not output.is_cut_short(exchange(1, **fields), None)


def test_the_same_text_sent_twice_may_be_cached() -> None:
    twice = [*readers(30, cached_tokens=9_000), *readers(30, cached_tokens=9_000)]
    assert cached.findings([*calibration(*range(9)), *control(), *twice]) == ()


# bystanders


def bystander(number: int, **fields: Any) -> Exchange:
    return exchange(number, group="bystanders", purpose=Purpose.BYSTANDER, tokens=2_000, **fields)


@pytest.mark.parametrize("outcome", ["hung", "errored", "truncated"])
def test_bystanders_that_were_stopped(outcome: str) -> None:
    one = bystanders.findings([bystander(1, outcome=outcome), bystander(2)])
    two = bystanders.findings([bystander(1, outcome=outcome), bystander(2, outcome=outcome)])
    assert [f.severity for f in (*one, *two)] == [Severity.DEGRADED, Severity.AVAILABILITY]
    assert {f.rule for f in (*one, *two)} == {"availability/bystanders-stopped"}


def test_turned_away_is_a_warning_and_rate_limits_are_nothing() -> None:
    away = [bystander(n, outcome="not_reached", reason="overloaded") for n in (1, 2)]
    (told,) = bystanders.findings(away)
    assert told.severity is Severity.DEGRADED
    limited = [bystander(n, outcome="not_reached", reason="rate_limited") for n in (1, 2)]
    assert bystanders.findings(limited) == ()


def test_bystanders_that_starved() -> None:
    calm = calibration(*range(9), first_token_seconds=0.2)
    long = exchange(5, total_seconds=60.0)
    late = bystander(6, first_token_seconds=55.0, total_seconds=56.0)
    (told,) = bystanders.findings([*calm, long, late])
    assert told.rule == "availability/bystanders-starved"
    early = late.model_copy(update={"first_token_seconds": 30.0})
    assert bystanders.findings([*calm, long, early]) == (), "not for as long as the long one took"
    assert (
        bystanders.findings([*calm, long, late.model_copy(update={"first_token_seconds": 5.0})])
        == ()
    )
    assert bystanders.findings([long, late]) == (), "nobody knows what is calm"


# pool


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (0, 5_000, True),
        (0, 900, False),
        (0, None, False),
        (None, 5_000, False),
        (5_000, 50_000, False),
    ],
)
def test_pages_that_stay_in_use(before: int | None, after: int | None, told: bool) -> None:
    def deployed(used: int | None) -> Any:
        facts = sound()
        return facts.model_copy(update={"workers": (worker(used_tokens=used),)})

    assert bool(pool_return.findings(deployed(before), deployed(after), ())) is told
    assert pool_return.findings(None, deployed(after), ()) == ()


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (((True, 5_000), (True, 0)), True),
        (((True, 0), (True, 5_000), (True, 4_000)), True),
        (((True, 5_000), (True, -5_000), (True, 0)), False),
        (((True, 0), (True, 5_000)), False),  # it may still come back
        (((True, 900), (True, 0)), False),  # too little to tell
        (((False, 5_000), (True, 0)), False),  # others use it
        (((True, 5_000), (False, 0), (True, 0)), False),
        (((True, 5_000), (True, None)), False),
    ],
)
def test_pages_that_nobody_holds_and_that_do_not_come_back(
    stages: tuple[tuple[bool, int | None], ...], told: bool
) -> None:
    windows = [
        Window(group=f"stage {n}", exchanges=(n,), quiet=quiet, held_tokens=held)
        for n, (quiet, held) in enumerate(stages)
    ]
    found = pool_return.findings(sound(), None, windows)
    assert [f.rule for f in found] == told * ["availability/pages-lost"]
    assert all(f.severity is Severity.AVAILABILITY for f in found)
    assert pool_return.findings(None, None, windows) == ()

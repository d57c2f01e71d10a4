"""What further visits, spoilt requests and long strata show: texts sent again, salts, refusals, slopes."""

from collections.abc import Sequence
from typing import Any

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.detect import (
    availability,
    cached,
    identity,
    replay,
    shared_cache,
    soak,
    spoilt,
)
from kvcanary.record.exchange import Answerer, Exchange, Purpose
from kvcanary.record.manner import Manner, Spoilt
from kvcanary.record.separation import Separation
from kvcanary.verdict.findings import Severity
from tests.builders import calibration, exchange

POSITIONS = list(Position)
GOOD = calibration(*range(90, 99))
SALTED = Manner(salted=True)
PROMISED = Separation(identities=2, salts=2)


def visits(purpose: Purpose, group: str, count: int, **fields: Any) -> list[Exchange]:
    """Further visits of the first ``count`` texts; ``lost``: how many of them lost their label."""
    lost, first = fields.pop("lost", 0), fields.pop("first", 20)
    return [
        exchange(
            first + n,
            group=group,
            purpose=purpose,
            asked=POSITIONS[n % 3],
            text_of=n,
            lost=n < lost,
            **fields,
        )
        for n in range(count)
    ]


def firsts(count: int, **fields: Any) -> list[Exchange]:
    return [exchange(n, group="cold", asked=POSITIONS[n % 3], **fields) for n in range(count)]


# -- replay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "rule"),
    [
        (0, None),
        (1, None),
        (4, "replay/labels-lost-undecided"),
        (6, "replay/labels-lost"),
    ],
)
def test_labels_that_are_lost_at_a_further_visit(lost: int, rule: str | None) -> None:
    warm = visits(Purpose.RETURN, "warm", 6, lost=lost)
    found = replay.findings([*GOOD, *firsts(6), *warm])
    assert [f.rule for f in found] == ([rule] if rule else [])
    if lost == 6:
        assert found[0].severity is Severity.CORRUPTION


def test_a_label_that_was_lost_cold_says_nothing_warm() -> None:
    cold = [e.model_copy(update={"recall": "lost"}) for e in firsts(6)]
    assert replay.findings([*GOOD, *cold, *visits(Purpose.RETURN, "warm", 6, lost=6)]) == ()


# -- shared caches ---------------------------------------------------------------------------------


def shared(other: Sequence[Exchange], *, warm_seconds: float = 0.1) -> list[Exchange]:
    cold = firsts(9, manner=SALTED, first_token_seconds=1.0)
    warm = visits(
        Purpose.RETURN,
        "warm",
        9,
        manner=SALTED,
        first_token_seconds=warm_seconds,
        cached_tokens=9_984,
    )
    return [*GOOD, *cold, *warm, *other]


def visitors(**fields: Any) -> list[Exchange]:
    return visits(Purpose.VISITOR, "other", 9, first=40, manner=SALTED, **fields)


def test_a_cache_that_keeps_salts_apart() -> None:
    everything = shared(visitors(first_token_seconds=1.01, cached_tokens=16))
    assert shared_cache.findings(everything, PROMISED) == ()


@pytest.mark.parametrize(
    ("separation", "rule", "severity"),
    [
        (PROMISED, "isolation/cache-shared", Severity.ACCOUNTING),
        (Separation(), "isolation/cache-shared-unasked", Severity.DEGRADED),
    ],
)
@pytest.mark.parametrize("sign", [{"cached_tokens": 9_984}, {"first_token_seconds": 0.1}])
def test_a_cache_that_does_not(
    separation: Separation, rule: str, severity: Severity, sign: dict[str, Any]
) -> None:
    other = visitors(**{"first_token_seconds": 1.01, **sign})
    (found,) = shared_cache.findings(shared(other), separation)
    assert (found.rule, found.severity) == (rule, severity)


def test_times_tell_nothing_where_the_same_tenant_is_no_faster() -> None:
    """There may be no cache at all; visitors are faster for another reason."""
    everything = shared(visitors(first_token_seconds=0.5), warm_seconds=1.02)
    assert shared_cache.findings(everything, PROMISED) == ()


def test_who_counts_the_hand_over_as_cached_is_not_accused() -> None:
    cold = [e.model_copy(update={"cached_tokens": 9_984}) for e in firsts(9, manner=SALTED)]
    assert shared_cache.findings([*GOOD, *cold, *visitors(cached_tokens=9_984)], PROMISED) == ()


def test_a_text_that_was_sent_before_may_be_cached() -> None:
    warm = visits(Purpose.RETURN, "warm", 9, cached_tokens=9_984)
    assert cached.findings([*GOOD, *firsts(9), *warm]) == ()


def test_a_further_visit_that_has_the_first_ones_response_is_a_response_cache() -> None:
    same = {"answerer": Answerer(response="aa")}
    exchanges = [exchange(1, **same), exchange(9, purpose=Purpose.RETURN, text_of=1, **same)]
    (found,) = identity.findings(exchanges, None, None)
    assert "a response cache answers" in found.title


# -- spoilt requests -------------------------------------------------------------------------------


def broken(count: int, **fields: Any) -> list[Exchange]:
    kinds = list(Spoilt)
    return [
        exchange(
            50 + n,
            group="spoilt",
            purpose=Purpose.SPOILT,
            manner=Manner(spoilt=kinds[n % len(kinds)]),
            **fields,
        )
        for n in range(count)
    ]


REFUSED = {"outcome": "errored", "reason": "client_error", "status": 400, "total_seconds": 0.1}


def test_refusals_at_once_are_fine() -> None:
    everything = [*GOOD, *broken(6, **REFUSED)]
    assert spoilt.findings(everything) == ()
    assert availability.findings(everything, None) == ()


def test_a_lenient_server_that_answers_from_the_prompt_is_fine() -> None:
    assert spoilt.findings([*GOOD, *broken(6)]) == ()


def test_answers_from_elsewhere_are_not() -> None:
    (found,) = spoilt.findings([*GOOD, *broken(6, lost=True)])
    assert (found.rule, found.severity) == ("refusal/not-terminal", Severity.ACCOUNTING)


@pytest.mark.parametrize(
    ("count", "severity"), [(1, Severity.DEGRADED), (2, Severity.AVAILABILITY)]
)
def test_refusals_that_never_come(count: int, severity: Severity) -> None:
    (found,) = spoilt.findings([*GOOD, *broken(count, outcome="hung")])
    assert (found.rule, found.severity) == ("availability/refusals-hang", severity)


def test_refusals_that_come_late() -> None:
    (found,) = spoilt.findings([*GOOD, *broken(2, **{**REFUSED, "total_seconds": 40.0})])
    assert (found.rule, found.severity) == ("availability/refusals-slow", Severity.DEGRADED)


def test_nobody_has_to_know_cache_salts() -> None:
    members = [exchange(n, manner=SALTED, **REFUSED) for n in range(3)]
    assert availability.findings(members, None) == ()
    assert availability.findings([exchange(n, **REFUSED) for n in range(3)], None)


# -- slopes ----------------------------------------------------------------------------------------


def long_run(count: int, **fields: Any) -> list[Exchange]:
    """``lost`` and ``pace``: functions of how far the run has come, from 0 to 1."""
    lost, pace = fields.get("lost", lambda _: False), fields.get("pace", lambda _: 0.01)
    return [
        exchange(
            n,
            started_at=1_780_000_000.0 + n,
            lost=lost(n / count),
            first_token_seconds=0.5,
            total_seconds=0.5 + 19 * pace(n / count),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({}, []),
        ({"lost": lambda part: part > 0.75}, ["soak/worse"]),
        ({"lost": lambda part: int(part * 240) % 9 == 0}, []),
        ({"pace": lambda part: 0.01 + 0.04 * part}, ["soak/slower"]),
        ({"pace": lambda part: 0.01 if part < 0.3 or part > 0.75 else 0.1}, []),
        ({"pace": lambda part: 0.01 + 0.004 * part}, []),
    ],
)
def test_what_gets_worse_with_the_number_of_requests(
    fields: dict[str, Any], rules: list[str]
) -> None:
    assert [f.rule for f in soak.findings(long_run(240, **fields))] == rules
    assert soak.findings(long_run(30, **fields)) == ()

"""Recitals with pieces that are there twice or left out, against those in good conditions."""

import pytest

from kvcanary.detect import continuity
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.recital import Recital
from kvcanary.verdict.claims import Status
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import calibration, exchange, healthy, readers

WHOLE = Recital(copied=2_000)
BREAKS = {"repeated": Recital(copied=2_000, repeated=1), "skipped": Recital(copied=900, skipped=2)}


def recitals(
    count: int, broken: int = 0, kind: str = "repeated", **fields: object
) -> list[Exchange]:
    first = 100 if fields.get("purpose") is Purpose.CONTROL else 200
    return [
        exchange(first + n, recital=BREAKS[kind] if n < broken else WHOLE, **fields)
        for n in range(count)
    ]


def calm(broken: int = 0, kind: str = "repeated", count: int = 24) -> list[Exchange]:
    return recitals(count, broken, kind, group="calm", purpose=Purpose.CONTROL)


@pytest.mark.parametrize("kind", BREAKS)
def test_more_seams_than_in_good_conditions_are_corruption(kind: str) -> None:
    (found,) = continuity.findings([*calm(1, kind), *recitals(24, 10, kind)])
    assert (found.rule, found.severity) == ("continuity/broken", Severity.CORRUPTION)
    assert found.exchanges == tuple(range(200, 210))
    assert found.stratum == "edge"


def test_what_is_surprising_is_a_warning() -> None:
    (found,) = continuity.findings([*calm(), *recitals(24, 7)])
    assert (found.rule, found.severity) == ("continuity/broken-undecided", Severity.DEGRADED)


@pytest.mark.parametrize(
    "sent",
    [
        [*calm(), *recitals(24, 3)],
        [*calm(9), *recitals(24, 11)],
        [*calm(count=5), *recitals(24, 20)],
        [*calm(), *recitals(1, 1)],
        [*calm(), *recitals(24, 20, purpose=Purpose.RETURN)],
        [*calm(), *recitals(24, 20, outcome="truncated")],
        [*calm(), *recitals(24)],
    ],
    ids=["few", "as in the calm", "nothing to compare", "one", "visits", "broken off", "none"],
)
def test_what_slips_explain_is_nothing(sent: list[Exchange]) -> None:
    assert continuity.findings(sent) == ()


def test_each_kind_is_compared_with_its_own() -> None:
    (found,) = continuity.findings([*calm(9, "skipped"), *recitals(24, 10)])
    assert found.rule == "continuity/broken"
    assert continuity.findings([*calm(9, "skipped"), *recitals(24, 10, "skipped")]) == ()


def test_it_fails_ownership() -> None:
    sent = [*calibration(*range(9)), *readers(10), *calm(), *recitals(24, 12)]
    judged = judge(healthy(exchanges=sent), ())
    claim = next(c for c in judged.verdict.claims if c.name == "ownership")
    assert claim.status is Status.FAIL

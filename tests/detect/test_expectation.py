"""What a probe's step expects, against what became of it."""

import pytest

from kvcanary.detect.expectation import findings
from kvcanary.record.exchange import Expectation
from kvcanary.verdict.claims import ClaimName, Status
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import healthy, readers


@pytest.mark.parametrize(
    ("expected", "outcome", "rule"),
    [
        (Expectation.ANSWERED, "refused", "refusal/unexpected"),
        (Expectation.REFUSED, "answered", "refusal/missing"),
        (Expectation.ANSWERED, "answered", None),
        (Expectation.REFUSED, "refused", None),
        (Expectation.EITHER, "answered", None),
        (Expectation.EITHER, "refused", None),
        *((e, o, None) for e in Expectation for o in ("hung", "not_reached", "aborted")),
    ],
)
def test_only_the_other_outcome_is_a_finding(
    expected: Expectation, outcome: str, rule: str | None
) -> None:
    found = findings(readers(1, "edge", expected=expected, outcome=outcome))
    assert [f.rule for f in found] == ([rule] if rule else [])
    for finding in found:
        assert finding.exchanges == (1, 2, 3)
        assert finding.severity is not Severity.DEGRADED


def test_it_fails_the_claim_about_refusals() -> None:
    run = healthy()
    off = readers(70, "mine", expected=Expectation.REFUSED)
    judged = judge(run.model_copy(update={"exchanges": (*run.exchanges, *off)}), ())
    claim = next(c for c in judged.verdict.claims if c.name is ClaimName.REFUSAL)
    assert claim.status is Status.FAIL
    assert "expects refusals" in claim.text

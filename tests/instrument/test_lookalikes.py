"""What looks like a fault and is none: no leak, corruption, availability or accounting is said of it."""

import pytest

from kvcanary.canary.codes import PREFIX, CodeId, CodeMaker
from kvcanary.canary.sitekey import SiteKey
from kvcanary.verdict.claims import ExitCode
from kvcanary.verdict.findings import Severity
from tests.instrument.lab_runs import SITE_KEY, Setup, ran

LOOKALIKES = (
    ("system-prompt=300",),
    ("overloaded-at=9", "cold-start=3"),
    ("adds-headers", "reorders-json"),
    ("output-cap=40",),
    ("overthinks",),
    ("moderates=0.15",),
)


@pytest.mark.parametrize("habits", LOOKALIKES, ids="+".join)
def test_a_lookalike_is_not_accused(habits: tuple[str, ...]) -> None:
    run = ran(Setup(habits=habits))
    assert run.accused == set()
    assert run.code in (ExitCode.PASS, ExitCode.INCONCLUSIVE)


def test_another_sites_marker_in_every_answer_is_unverified_and_a_warning() -> None:
    another = SiteKey(bytes(range(1, 33)))
    assert another != SITE_KEY
    code = CodeMaker(another).make(CodeId(run=5, request=3, position=1))
    groups = "-".join((PREFIX, *(code[at : at + 4] for at in range(0, 16, 4))))
    run = ran(Setup(habits=(f"pastes=the ledger label is {groups}",)))
    assert run.accused == set()
    assert run.rules == {"isolation/unverified-code"}
    assert {finding.severity for finding in run.record.findings} == {Severity.DEGRADED}
    assert run.code is ExitCode.PASS

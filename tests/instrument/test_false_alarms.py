"""A small part of ``make false-alarms``: one run of each habit, none of which is accused."""

import pytest

from kvcanary.verdict.claims import ExitCode
from tests.instrument.false_alarms import HABITS, outcome, setups
from tests.instrument.lab_runs import Setup


@pytest.mark.parametrize(
    "setup", list(setups(len(HABITS), 1_000)), ids=lambda s: "+".join(s.habits)
)
def test_a_healthy_lab_is_not_accused(setup: Setup) -> None:
    result = outcome(setup)
    assert result.findings == ()
    assert result.code in (ExitCode.PASS, ExitCode.INCONCLUSIVE)

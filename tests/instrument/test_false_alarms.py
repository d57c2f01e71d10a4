"""A small part of ``make false-alarms``: a few of its habits, none of which is accused."""

import pytest

from kvcanary.verdict.claims import ExitCode
from tests.instrument.false_alarms import HABITS, outcome, setups
from tests.instrument.lab_runs import Setup

RUNS = len(HABITS) + 4
"""Every kind once, the first ones twice: about thirty seeds."""


@pytest.mark.parametrize(
    "setup", tuple(setups(RUNS, 1_000)), ids=lambda s: "+".join((str(s.seed), *s.habits))[:40]
)
def test_a_healthy_lab_is_not_accused(setup: Setup) -> None:
    result = outcome(setup)
    assert not result.accused, result
    assert result.code in (ExitCode.PASS, ExitCode.INCONCLUSIVE)

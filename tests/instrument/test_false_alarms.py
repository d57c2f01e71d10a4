"""A small part of ``make false-alarms``: a few of its habits, none of which is accused."""

import pytest

from kvcanary.verdict.claims import ExitCode
from tests.instrument.false_alarms import HABITS, outcome, setups
from tests.instrument.lab_runs import Setup

CHOSEN = (
    (),
    ("chatter",),
    ("chatter", "copy-error=0.03"),
    ("quote", "unrepeatable", "copy-error=0.02"),
)


@pytest.mark.parametrize(
    "setup",
    [s for s in setups(len(HABITS), 1_000) if s.habits in CHOSEN],
    ids=lambda s: "+".join(s.habits),
)
def test_a_healthy_lab_is_not_accused(setup: Setup) -> None:
    result = outcome(setup)
    assert result.findings == ()
    assert result.code in (ExitCode.PASS, ExitCode.INCONCLUSIVE)

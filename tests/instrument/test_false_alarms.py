"""A small part of ``make false-alarms``: a few of its habits, none of which is accused."""

from pathlib import Path

import pytest

from kvcanary.verdict.claims import ExitCode
from tests.instrument.false_alarms import HABITS, Outcome, outcome, setups
from tests.instrument.lab_runs import Setup
from tools import false_alarms

RUNS = len(HABITS) + 4
"""Every kind once, the first ones twice: about thirty seeds."""


@pytest.mark.parametrize(
    "setup", tuple(setups(RUNS, 1_000)), ids=lambda s: "+".join((str(s.seed), *s.habits))[:40]
)
def test_a_healthy_lab_is_not_accused(setup: Setup) -> None:
    result = outcome(setup)
    assert not result.accused, result
    assert result.code in (ExitCode.PASS, ExitCode.INCONCLUSIVE)


def test_what_was_run_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    """Killed in the middle of a line: that one is run again, and the others stand."""
    path = tmp_path / "runs.jsonl"
    made = [
        Outcome(
            seed,
            ("chatter",),
            0,
            "PASS",
            ("a (degraded)",),
            accused=False,
            answers=9,
            phantom_names=1,
            phantom_words=0,
        )
        for seed in range(3)
    ]
    assert false_alarms.read(path) == []
    for one in made:
        false_alarms.write(path, one)
    path.write_bytes(path.read_bytes()[:-9])
    assert false_alarms.read(path) == made[:2]
    false_alarms.write(path, made[2])
    assert false_alarms.read(path) == made

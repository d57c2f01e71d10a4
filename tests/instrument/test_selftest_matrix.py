"""A small part of ``make selftest``: a fault of most mechanisms, each caught by a suite that meets it."""

from pathlib import Path

import pytest

from kvcanary.cli.selftesting import chosen, run_case
from kvcanary.selftest.case import Terms

TERMS = Terms(
    suite="check",
    besides=None,
    context_tokens=4_096,
    page_tokens=16,
    seed=0,
    deadline_seconds=30,
    case_seconds=200,
)
FAULTS = (
    "refused-over-pool",
    "tail-missing",
    "other-pages-sent",
    "id-reuse",
    "ranks-crossed",
    "truncated-tail",
    "gateway-cache",
)


@pytest.mark.parametrize(
    ("key", "suite"), [*((key, "check") for key in FAULTS), ("refused-parameter", "predeploy")]
)
def test_a_fault_is_caught(key: str, suite: str, tmp_path: Path) -> None:
    (case,) = chosen((key,), ())
    result = run_case(case, TERMS.model_copy(update={"suite": suite}), tmp_path)
    assert result.wrong is None, result
    assert any(d.fails for d in result.catching), "more than a warning"

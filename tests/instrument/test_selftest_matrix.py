"""A small part of ``make selftest``: a fault of most mechanisms, each caught by a probe that meets it."""

from pathlib import Path

import pytest

from kvcanary.cli.selftesting import chosen, run_case
from kvcanary.lab import faults
from kvcanary.selftest.case import Terms

TERMS = Terms(
    suite="soak",
    besides=None,
    context_tokens=4_096,
    page_tokens=16,
    seed=0,
    deadline_seconds=60,
    case_seconds=300,
)
CAUGHT = {
    "refused-over-pool": "oversize",
    "sent-after-release": "oversize",
    "other-pages-sent": "oversize",
    "load-back-early": "return",
    "id-reuse": "matrix",
    "cache-collides": "replay",
    "last-page-left": "oversize",
    "ranks-crossed": "oversize",
    "truncated-tail": "oversize",
    "gateway-cache": "oversize",
}
TOO_LONG = {"resource-leak", "preempt-resume", "no-isolation-by-design"}
"""Hundreds of requests, or a lab that is true to time: only in the whole matrix."""


def test_every_other_mechanism_is_among_them() -> None:
    mechanisms = {fault.mechanism for fault in faults()}
    assert {f.mechanism for f in faults() if f.key in CAUGHT} == mechanisms - TOO_LONG


@pytest.mark.parametrize(("key", "probe"), CAUGHT.items())
def test_a_fault_is_caught(key: str, probe: str, tmp_path: Path) -> None:
    (case,) = chosen((key,), ())
    result = run_case(case, TERMS.model_copy(update={"probes": (probe,)}), tmp_path)
    assert result.wrong is None, result
    assert any(d.fails for d in result.catching), "more than a warning"

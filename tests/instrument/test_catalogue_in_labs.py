"""Probes of the catalogue against the lab: silent on a healthy one, and each finds a fault of its mechanism.

A small part, with seeds; the selftest has the whole matrix.
"""

from pathlib import Path

import pytest

from kvcanary.verdict.claims import ExitCode
from tests.instrument.lab_runs import Ran, Setup, ran

HEALTHY = (
    ("refusals", ("chatter",)),
    ("matrix", ("copy-error=0.02",)),
    ("pairs", ("reorders-json",)),
    ("replay", ("unrepeatable",)),
    ("return", ("system-prompt=300",)),
    ("saturation", ("quote",)),
    ("backlog", ("adds-headers",)),
    ("identity", ()),
    ("tenants", ("copy-error=0",)),
    ("mixed", ("thinks",)),
)
FAULTY = (
    ("refusals", "refused-parameter", {"isolation/foreign-text", "refusal/not-terminal"}),
    ("matrix", "gateway-chunk:0.2", {"isolation/foreign-text", "isolation/foreign-chunk"}),
    ("matrix", "output-clipped", {"output/clipped"}),
    ("replay", "whole-prompt-cached", {"replay/labels-lost"}),
    ("tenants", "cache-ignores-salt", {"isolation/cache-shared-unasked"}),
    ("saturation", "resume-repeats", {"continuity/broken", "continuity/broken-undecided"}),
    ("adapters", "cache-ignores-adapter", {"replay/cached-across-adapters"}),
    ("backlog", "refused-time-out", {"isolation/foreign-text", "ownership/labels-lost"}),
)


def alone(folder: Path, probe: str) -> str:
    """A suite of one probe."""
    path = folder / "alone.yaml"
    path.write_text(f"id: alone\ntitle: Alone\nprobes: [{probe}]\nrequires: [ownership]\n")
    return str(path)


def probed(folder: Path, probe: str, **fields: tuple[str, ...]) -> Ran:
    return ran(Setup(suite=alone(folder, probe), **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("probe", "habits"), HEALTHY, ids=[probe for probe, _ in HEALTHY])
def test_a_healthy_deployment_is_not_accused(
    tmp_path: Path, probe: str, habits: tuple[str, ...]
) -> None:
    run = probed(tmp_path, probe, habits=habits)
    assert run.accused == set()
    assert run.code in (ExitCode.PASS, ExitCode.INCONCLUSIVE)
    assert not run.record.stopped


@pytest.mark.parametrize(("probe", "fault", "rules"), FAULTY, ids=[f for _, f, _ in FAULTY])
def test_a_fault_of_its_mechanism_is_found(
    tmp_path: Path, probe: str, fault: str, rules: set[str]
) -> None:
    run = probed(tmp_path, probe, faults=(fault,))
    assert run.rules & rules

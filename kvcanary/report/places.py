"""The file and line that a finding or a claim is shown at."""

from dataclasses import dataclass

from kvcanary.record.run import RunRecord
from kvcanary.verdict.findings import Finding

DEPLOYMENT_FILE = "kvcanary.yaml"
"""What ``kvcanary init`` writes: where a person changes what is tested and promised."""


@dataclass(frozen=True, slots=True)
class Spot:
    """``path`` is relative to the repository."""

    path: str
    line: int


def spot_of(finding: Finding, record: RunRecord) -> Spot:
    """The line of the stratum that sent its first request; without requests, what was tested."""
    by_number = {e.number: e for e in record.exchanges}
    first = next((by_number[n] for n in finding.exchanges if n in by_number), None)
    if first is None:
        return whole_run(record)
    mine = [s for s in record.info.sources if s.probe == first.probe]
    exact = [s for s in mine if s.group == first.group]
    return next((Spot(s.path, s.line) for s in (*exact, *mine)), whole_run(record))


def whole_run(record: RunRecord) -> Spot:
    """The deployment file, where one was given; else the suite's, else the name that it would have."""
    target = record.info.target
    relative = not target.startswith(("/", ".", "~")) and "://" not in target
    if relative and target.endswith((".yaml", ".yml")):
        return Spot(target, 1)
    suites = (s for s in record.info.sources if s.probe is None)
    return next((Spot(s.path, s.line) for s in suites), Spot(DEPLOYMENT_FILE, 1))

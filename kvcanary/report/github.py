"""GitHub Actions: annotations, and the summary of the step.

The runner reads workflow commands from both streams of a step. It shows ten annotations of each kind, and
drops a summary that is larger than 1,024 KiB.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvcanary.errors import ConfigError
from kvcanary.record.run import RunRecord
from kvcanary.report import markdown
from kvcanary.report.files import append
from kvcanary.report.places import Spot, spot_of, whole_run
from kvcanary.report.summary import harmless
from kvcanary.verdict.claims import Status
from kvcanary.verdict.findings import Finding, Severity

MAX_OF_A_KIND = 10
MAX_SUMMARY_BYTES = 1_000 * 1_024
SUMMARY = "GITHUB_STEP_SUMMARY"
MAX_EVIDENCE = 5


@dataclass(frozen=True, slots=True)
class _Annotation:
    kind: str
    spot: Spot
    title: str
    text: str


def render(record: RunRecord) -> str:
    """The annotations, a line each."""
    shown: dict[str, list[_Annotation]] = {"error": [], "warning": [], "notice": []}
    for annotation in _annotations(harmless(record)):
        shown[annotation.kind].append(annotation)
    lines = []
    for kind, annotations in shown.items():
        for number, one in enumerate(annotations[:MAX_OF_A_KIND], start=1):
            more = len(annotations) - number
            cut = f"\nAnd {more} more: see the summary." if number == MAX_OF_A_KIND and more else ""
            lines.append(
                f"::{kind} file={_property(one.spot.path)},line={max(1, one.spot.line)},"
                f"title={_property(one.title)}::{_data(one.text + cut)}\n"
            )
    return "".join(lines)


def deliver(record: RunRecord, where: str) -> None:
    """Annotations on standard error, so that standard output stays as asked; the summary where the runner says.

    Raises ConfigError when the summary cannot be written, or would be dropped.
    """
    sys.stderr.write(render(record))
    name = where or os.environ.get(SUMMARY)
    if not name:
        return
    text = markdown.render(record)
    path = Path(name)
    before = path.stat().st_size if path.exists() else 0
    if before + len(text.encode()) > MAX_SUMMARY_BYTES:
        raise ConfigError(
            f"The step's summary {name} has no room left: GitHub drops one above 1,024 KiB. "
            "Write less to it in the same step."
        )
    append(path, text + "\n")


def _annotations(record: RunRecord) -> Iterator[_Annotation]:
    for finding in record.findings:
        yield _Annotation(
            _kind(finding),
            spot_of(finding, record),
            f"kvcanary {finding.severity.value}: {finding.rule}",
            "\n".join((finding.title, *finding.evidence[:MAX_EVIDENCE], finding.remedy)),
        )
    spot = whole_run(record)
    if record.verdict is None:
        why = record.stopped or "it was cut off"
        yield _Annotation("warning", spot, "kvcanary: no verdict", f"The run did not finish: {why}")
        return
    if record.verdict.unsound:
        yield _Annotation("warning", spot, "kvcanary: inconclusive", record.verdict.headline)
    for claim in record.verdict.claims:
        if claim.required and claim.status is Status.INCONCLUSIVE:
            title = f"kvcanary: {claim.name.value} is inconclusive"
            yield _Annotation("warning", spot, title, claim.text)


def _kind(finding: Finding) -> str:
    if finding.waived:
        return "notice"
    return "warning" if finding.severity is Severity.DEGRADED else "error"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

"""What a judged record says of one claim and of one probe: pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from kvcanary.probing.grammar import Probe
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import ClaimName, ExitCode, Status, Stratum, Verdict
from kvcanary.verdict.findings import FAILING, Finding
from kvcanary.verdict.judge import CLAIM_OF_RULE

MAX_EVIDENCE = 6
"""Lines of a finding's evidence that are shown; the record has all."""
_JUDGED = ("reader", "control")
"""Purposes of strata that a probe is sent for."""


class Kind(Enum):
    """What becomes of a test item."""

    PASSED = auto()
    FAILED = auto()
    INCONCLUSIVE = auto()
    """The suite needs it and it could not be measured: never a pass."""
    SKIPPED = auto()
    """It was not asked for, or there is nothing here that it could test."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``text``: for a person; of a pass, what it rests on."""

    kind: Kind
    text: str


def of_claim(record: RunRecord, name: ClaimName, path: str) -> Outcome:
    """A claim of the run. ``path``: of the record, for the commands that show more."""
    verdict = _verdict(record)
    claim = next(claim for claim in verdict.claims if claim.name is name)
    said = f"claim {name}: {claim.text}"
    if claim.status is Status.PASS:
        if claim.required and verdict.unsound:
            return Outcome(Kind.INCONCLUSIVE, f"inconclusive: {verdict.headline}")
        return Outcome(Kind.PASSED, said)
    mine = [f for f in record.findings if CLAIM_OF_RULE[f.rule.split("/")[0]] is name]
    if claim.status is Status.FAIL:
        return Outcome(Kind.FAILED, _with_findings(said, record, mine, path))
    if not claim.required:
        return Outcome(Kind.SKIPPED, f"not required and not shown: {said}")
    text = _with_findings(f"inconclusive: {said}", record, mine, path)
    return Outcome(Kind.INCONCLUSIVE, text)


def of_probe(record: RunRecord, probe: Probe, path: str) -> Outcome:
    """What the findings in a probe's exchanges say of it; what was not measured passes only with the run."""
    if not probe.groups:  # no traffic: the deployment's own figures
        return of_claim(record, ClaimName.CAPACITY, path)
    verdict = _verdict(record)
    said = f"probe {probe.id}"
    numbers = {e.number for e in record.exchanges if e.probe == probe.id}
    mine = [f for f in record.findings if _counts(f) and not numbers.isdisjoint(f.exchanges)]
    if mine:
        first = f"{said} ({probe.title}): {mine[0].title}"
        return Outcome(Kind.FAILED, _with_findings(first, record, mine, path, whole=True))
    unmet = [u for u in (record.plan.unmet if record.plan else ()) if u.probe == probe.id]
    for need in unmet:
        if not need.applicable:
            reason = f"needs {need.need}, and {need.reason}"
            return Outcome(Kind.SKIPPED, f"{said} does not apply: it {reason}")
    groups = {e.group for e in record.exchanges if e.probe == probe.id}
    strata = [s for s in verdict.strata if s.name in groups]
    judged = [s for s in strata if s.purpose in _JUDGED]
    lines = [f"{said} ({probe.title})", *map(_stratum, strata)]
    if not judged or any(not (s.measured or s.refused) for s in judged):
        if verdict.exit_code is not ExitCode.PASS:
            lines[0] = f"inconclusive: {said} was not measured{_why_not(record, probe)}"
            return Outcome(Kind.INCONCLUSIVE, "\n".join(lines))
        if not judged:
            return Outcome(Kind.SKIPPED, f"{said} was not measured{_why_not(record, probe)}")
    return Outcome(Kind.PASSED, "\n".join(lines))


def _verdict(record: RunRecord) -> Verdict:
    if record.verdict is None:
        raise ValueError("a record without a verdict has no outcome")
    return record.verdict


def _counts(finding: Finding) -> bool:
    return finding.severity in FAILING and not finding.waived


def _why_not(record: RunRecord, probe: Probe) -> str:
    plan = record.plan
    reasons = (
        [f"it needs {u.need}, and {u.reason}" for u in plan.unmet if u.probe == probe.id]
        if plan
        else []
    )
    names = tuple(f"{start}{g}:" for g in probe.groups for start in ("", f"{probe.id}/"))
    reasons += [line for line in (plan.skipped if plan else ()) if line.startswith(names)]
    reasons += [record.stopped] if record.stopped else []
    return f": {'; '.join(reasons)}" if reasons else ""


def _stratum(stratum: Stratum) -> str:
    bound = "" if stratum.bound is None else f"; bad answers below {stratum.bound:.0%} at 95 %"
    return (
        f"  {stratum.name}, {stratum.shortest_tokens:,} to {stratum.longest_tokens:,} tokens: "
        f"{stratum.measured - stratum.lost} of {stratum.measured} kept their labels, {stratum.foreign} with "
        f"foreign text, {stratum.refused} of {stratum.sent} refused{bound}"
    )


def _with_findings(
    said: str, record: RunRecord, findings: Iterable[Finding], path: str, *, whole: bool = False
) -> str:
    """``whole``: with the evidence that lies in exchanges, which a claim leaves to its probes."""
    lines = [said]
    for finding in findings:
        number = record.findings.index(finding) + 1
        lines.append("")
        lines += _finding(number, finding, path, whole=whole or not finding.exchanges)
    return "\n".join((*lines, "", f"all of it: kvcanary report {path}"))


def _finding(number: int, finding: Finding, path: str, *, whole: bool) -> Iterator[str]:
    yield f"F{number} {finding.severity.value}  {finding.title}  [{finding.rule}]"
    if finding.waived:
        yield f"   waived {finding.waived}"
    evidence = finding.evidence if whole else ()
    yield from (f"   - {line}" for line in evidence[:MAX_EVIDENCE])
    if (more := len(evidence) - MAX_EVIDENCE) > 0:
        yield f"   - and {more} more in the record"
    yield f"   what to do: {finding.remedy}"
    if finding.exchanges:
        yield f"   replay: kvcanary replay {path} F{number}"

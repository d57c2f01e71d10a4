"""What a judged record says of one claim and of one probe: pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from kvcanary.probing.grammar import Probe
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import Claim, ClaimName, ExitCode, Status, Stratum, Verdict
from kvcanary.verdict.findings import FAILING, Finding
from kvcanary.verdict.judge import CLAIM_OF_RULE

MAX_EVIDENCE = 6
"""Lines of a finding's evidence that are shown; the record has all."""


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
    """A claim of the run. ``path``: of the record, for the command that replays a finding."""
    verdict = _verdict(record)
    claim = next(claim for claim in verdict.claims if claim.name is name)
    said = f"claim {name}: {claim.text}"
    if claim.status is Status.FAIL:
        return Outcome(Kind.FAILED, _with_findings(said, record, _of_claim(record, name), path))
    if claim.status is Status.INCONCLUSIVE:
        if claim.required:
            return Outcome(
                Kind.INCONCLUSIVE,
                _with_findings(f"inconclusive: {said}", record, _of_claim(record, name), path),
            )
        return Outcome(Kind.SKIPPED, f"not required and not shown: {said}")
    if claim.required and _unsound(verdict):
        return Outcome(Kind.INCONCLUSIVE, f"inconclusive: {verdict.headline}")
    return Outcome(Kind.PASSED, said)


def of_probe(record: RunRecord, probe: Probe, path: str) -> Outcome:
    """What the findings in a probe's exchanges say of it; one of which nothing was measured never passes."""
    if not probe.groups:  # no traffic: the deployment's own figures
        return of_claim(record, ClaimName.CAPACITY, path)
    verdict = _verdict(record)
    mine = [f for f in record.findings if _counts(f) and _in_probe(f, probe, record)]
    if mine:
        first = f"probe {probe.id} ({probe.title}): {mine[0].title}"
        return Outcome(Kind.FAILED, _with_findings(first, record, mine, path))
    for unmet in record.plan.unmet if record.plan else ():
        if unmet.probe == probe.id and not unmet.applicable:
            reason = f"needs {unmet.need}, and {unmet.reason}"
            return Outcome(Kind.SKIPPED, f"probe {probe.id} does not apply: it {reason}")
    strata = [s for s in verdict.strata if s.name in probe.groups]
    if any(s.measured or s.refused for s in strata):
        lines = (f"probe {probe.id} ({probe.title})", *map(_stratum, strata))
        return Outcome(Kind.PASSED, "\n".join(lines))
    reasons = _why_not(record, probe)
    said = f"probe {probe.id}: nothing of it was measured{f' ({reasons})' if reasons else ''}"
    if verdict.exit_code is ExitCode.PASS:
        return Outcome(Kind.SKIPPED, f"{said}; what the suite requires passes without it")
    return Outcome(Kind.INCONCLUSIVE, f"inconclusive: {said}")


def _verdict(record: RunRecord) -> Verdict:
    if record.verdict is None:
        raise ValueError("a record without a verdict has no outcome")
    return record.verdict


def _unsound(verdict: Verdict) -> bool:
    """Inconclusive though each claim that is required passes: the run did not come to its end."""
    short = any(c.required and c.status is Status.INCONCLUSIVE for c in verdict.claims)
    return verdict.exit_code is ExitCode.INCONCLUSIVE and not short


def _counts(finding: Finding) -> bool:
    return finding.severity in FAILING and not finding.waived


def _of_claim(record: RunRecord, name: ClaimName) -> list[Finding]:
    return [f for f in record.findings if CLAIM_OF_RULE[f.rule.split("/")[0]] is name]


def _in_probe(finding: Finding, probe: Probe, record: RunRecord) -> bool:
    """By the exchanges that it names; by its stratum where it names none."""
    if not finding.exchanges:
        return finding.stratum in probe.groups
    numbers = set(finding.exchanges)
    return any(e.probe == probe.id for e in record.exchanges if e.number in numbers)


def _why_not(record: RunRecord, probe: Probe) -> str:
    plan = record.plan
    if plan is None:
        return record.stopped or ""
    lacking = [f"it needs {u.need}, and {u.reason}" for u in plan.unmet if u.probe == probe.id]
    groups = tuple(f"{group}:" for group in probe.groups)
    return "; ".join((*lacking, *(line for line in plan.skipped if line.startswith(groups))))


def _stratum(stratum: Stratum) -> str:
    bound = "" if stratum.bound is None else f"; bad answers below {stratum.bound:.0%} at 95 %"
    return (
        f"  {stratum.name}, {stratum.shortest_tokens:,} to {stratum.longest_tokens:,} tokens: "
        f"{stratum.measured - stratum.lost} of {stratum.measured} kept their labels, {stratum.foreign} with "
        f"foreign text, {stratum.refused} of {stratum.sent} refused{bound}"
    )


def _with_findings(
    said: str, record: RunRecord, findings: Iterable[Finding], path: str
) -> str:
    lines = [said]
    for finding in findings:
        lines += ["", *_finding(record.findings.index(finding) + 1, finding, path)]
    return "\n".join((*lines, "", f"record  kvcanary report {path}"))


def _finding(number: int, finding: Finding, path: str) -> Iterator[str]:
    yield f"F{number} {finding.severity.value}  {finding.title}  [{finding.rule}]"
    if finding.waived:
        yield f"   waived {finding.waived}"
    yield from (f"   - {line}" for line in finding.evidence[:MAX_EVIDENCE])
    if (more := len(finding.evidence) - MAX_EVIDENCE) > 0:
        yield f"   - and {more} more in the record"
    yield f"   what to do: {finding.remedy}"
    if finding.exchanges:
        yield f"   replay: kvcanary replay {path} F{number}"

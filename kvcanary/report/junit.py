"""JUnit (pytest's xunit2 shape): a claim is a test case; failure = verdict, error = could not measure,
skipped = not required and not assessed."""

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from kvcanary.record.run import RunRecord
from kvcanary.report.figures import figures
from kvcanary.report.summary import harmless
from kvcanary.verdict.claims import Claim, Status
from kvcanary.verdict.findings import Finding
from kvcanary.verdict.judge import CLAIM_OF_RULE


def render(record: RunRecord) -> str:
    """The report as XML text."""
    record = harmless(record)
    suite = TestSuite("kvcanary")
    suite.add_property("run", f"{record.info.run:07x}")
    suite.add_property("target", record.info.target)
    if record.verdict is None:
        case = TestCase("run", f"kvcanary.{record.info.suite}")
        case.result = [Error(f"the run did not finish: {record.stopped or 'interrupted'}")]
        suite.add_testcase(case)
    else:
        if record.verdict.unsound:
            case = TestCase("run", f"kvcanary.{record.info.suite}")
            case.result = [Error(record.verdict.headline, "inconclusive")]
            suite.add_testcase(case)
        for claim in record.verdict.claims:
            suite.add_testcase(_case(claim, record))
    suite.update_statistics()  # type: ignore[no-untyped-call]
    seconds = figures(record).seconds
    if seconds is not None:
        suite.time = round(min(seconds, 1e9), 3)
    xml = JUnitXml(
        "kvcanary"
    )  # no sums of its own: pytest writes none, and its schema knows no `skipped` here
    xml.add_testsuite(suite)
    text: bytes = xml.tostring()  # type: ignore[no-untyped-call]
    return text.decode("utf-8") + "\n"


def _case(claim: Claim, record: RunRecord) -> TestCase:
    case = TestCase(claim.name.value, f"kvcanary.{record.info.suite}")
    text = claim.text
    if claim.status is Status.FAIL:
        failure = Failure(text, "violation")
        failure.text = "\n\n".join(_told(f) for f in record.findings if _about(f, claim))
        case.result = [failure]
    elif claim.status is Status.INCONCLUSIVE:
        case.result = [Error(text, "inconclusive") if claim.required else Skipped(text)]
    else:
        case.system_out = text
    return case


def _about(finding: Finding, claim: Claim) -> bool:
    return CLAIM_OF_RULE.get(finding.rule.split("/")[0]) is claim.name


def _told(finding: Finding) -> str:
    return "\n".join(
        (f"{finding.severity}: {finding.title} [{finding.rule}]", *finding.evidence, finding.remedy)
    )

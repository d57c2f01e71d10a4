"""SARIF 2.1.0, for code scanning: a finding is a result, at the line of the probe that showed it.

A required claim that could not be measured is a result, too: an upload without results closes the alerts of
the one before. GitHub's limits: https://docs.github.com/en/code-security/code-scanning
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import kvcanary
from kvcanary.record.run import RunRecord
from kvcanary.report.places import Spot, spot_of, whole_run
from kvcanary.report.rules import help_of
from kvcanary.report.summary import harmless
from kvcanary.verdict.claims import Claim, ExitCode, Status
from kvcanary.verdict.findings import Finding, Severity

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
MAX_RESULTS = 5_000
"""Results that GitHub shows."""
MAX_EVIDENCE = 20
MAX_DESCRIPTION = 1_000
NOT_MEASURED = "claim/not-measured"
SECURITY_SEVERITY = {Severity.LEAK: "9.1", Severity.CORRUPTION: "7.5"}
"""GitHub's scale: above 9.0 critical, from 7.0 high. Other findings are no matter of security."""
TAGS = {
    Severity.LEAK: ("security", "external/cwe/cwe-226"),
    Severity.CORRUPTION: ("security", "external/cwe/cwe-672"),
}
"""CWE-226: sensitive information in a resource is not removed before its reuse; CWE-672: a resource is used
after it was released."""
_ESCAPED = re.compile(r"([\\\[\]])")

Json = dict[str, Any]


def render(record: RunRecord) -> str:
    """One run of the tool."""
    plain = harmless(record)
    results = [*_results(plain)][:MAX_RESULTS]
    info, verdict = plain.info, plain.verdict
    code = verdict.exit_code if verdict else ExitCode.INCONCLUSIVE
    driver = {
        "name": "kvcanary",
        "semanticVersion": kvcanary.__version__,
        "rules": list(_rules(plain, {r["ruleId"] for r in results})),
    }
    invocation: Json = {"executionSuccessful": verdict is not None, "exitCode": int(code)}
    if 0 <= info.started_at < 1e11:
        started = datetime.fromtimestamp(info.started_at, UTC)
        invocation["startTimeUtc"] = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    run: Json = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"kvcanary/{info.suite}/"},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {
            "run": f"{info.run:07x}",
            "target": info.target,
            "model": info.model,
            "headline": verdict.headline if verdict else (record.stopped and plain.stopped),
        },
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def _results(record: RunRecord) -> Iterator[Json]:
    """Worst first, as a record has them; what was not measured after that."""
    seen: Counter[tuple[str, str]] = Counter()
    for finding in record.findings:
        key = (finding.rule, finding.stratum)
        seen[key] += 1
        yield _of_finding(finding, spot_of(finding, record), seen[key])
    spot = whole_run(record)
    if record.verdict is None:
        yield _not_measured("run", f"The run did not finish: {record.stopped or 'cut off'}.", spot)
    else:
        if record.verdict.unsound:
            yield _not_measured("run", f"Inconclusive: {record.verdict.headline}.", spot)
        for claim in record.verdict.claims:
            if claim.required and claim.status is Status.INCONCLUSIVE:
                yield _not_measured(claim.name.value, _told(claim), spot)


def _told(claim: Claim) -> str:
    return f"The claim {claim.name.value} is inconclusive: {claim.text}"


def _of_finding(finding: Finding, spot: Spot, ordinal: int) -> Json:
    lines = [f"{finding.title}.", *(f"- {e}" for e in finding.evidence[:MAX_EVIDENCE])]
    if finding.remedy:
        lines.append(f"What to do: {finding.remedy}")
    result = _result(
        finding.rule,
        "warning" if finding.severity is Severity.DEGRADED else "error",
        "\n".join(lines),
        spot,
        f"{finding.stratum} {ordinal}",
    )
    if finding.waived:
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": finding.waived}
        ]
    return result


def _not_measured(what: str, text: str, spot: Spot) -> Json:
    return _result(NOT_MEASURED, "warning", text, spot, what)


def _result(rule: str, level: str, text: str, spot: Spot, identity: str) -> Json:
    """``identity``: what makes it the same from run to run, beside its rule."""
    fingerprint = sha256(f"{rule}\n{identity}".encode("utf-8", "replace")).hexdigest()[:32]
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": _ESCAPED.sub(r"\\\1", text)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(spot.path), "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": max(1, spot.line)},
                }
            }
        ],
        "partialFingerprints": {"kvcanaryFinding/v1": fingerprint},
    }


def _rules(record: RunRecord, used: set[str]) -> Iterator[Json]:
    worst: dict[str, Finding] = {}
    order = list(Severity)
    for finding in record.findings:
        known = worst.setdefault(finding.rule, finding)
        if order.index(finding.severity) < order.index(known.severity):
            worst[finding.rule] = finding
    for rule, finding in worst.items():
        if rule in used:
            properties: Json = {"tags": ["kv-cache", finding.severity.value]}
            if finding.severity in SECURITY_SEVERITY:
                properties["security-severity"] = SECURITY_SEVERITY[finding.severity]
                properties["tags"] += TAGS[finding.severity]
            yield _rule(rule, help_of(rule), properties)
    if NOT_MEASURED in used:
        text = "A claim that the suite requires could not be measured. Nothing was shown about it."
        yield _rule(NOT_MEASURED, text, {"tags": ["kv-cache"]})


def _rule(rule: str, text: str, properties: Mapping[str, Any]) -> Json:
    told = text or f"See `kvcanary explain {rule}`."
    first = told.partition("\n")[0].partition(". ")[0].rstrip(".") + "."
    return {
        "id": rule,
        "name": "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", rule)) or "Rule",
        "shortDescription": {"text": first[:MAX_DESCRIPTION]},
        "fullDescription": {"text": told.partition("\n\n")[0][:MAX_DESCRIPTION]},
        "help": {"text": told, "markdown": told},
        "properties": dict(properties),
    }


def _uri(path: str) -> str:
    """A relative reference: what is no plain name in a path is escaped."""
    from urllib.parse import quote

    return quote(path.lstrip("/") or "kvcanary.yaml", safe="/")

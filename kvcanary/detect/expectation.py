"""Expectations: what a probe's own steps say has to become of their requests.

Only answers and refusals are compared: hangs, errors and proxies have findings of their own.
"""

from collections.abc import Sequence

from kvcanary.record.exchange import Exchange, Expectation
from kvcanary.verdict.findings import Finding, Severity

_OUTCOMES = {Expectation.ANSWERED: "answered", Expectation.REFUSED: "refused"}


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Strata with a refusal where an answer is expected, or an answer where a refusal is."""
    told = [e for e in exchanges if e.outcome in _OUTCOMES.values()]
    found = []
    for expected, outcome in _OUTCOMES.items():
        off = [e for e in told if e.expected is expected and e.outcome != outcome]
        for group in sorted({e.group for e in off}):
            members = [e for e in off if e.group == group]
            sent = sum(e.group == group for e in exchanges)
            found.append(_finding(expected, group, members, sent))
    return tuple(found)


def _finding(expected: Expectation, group: str, members: Sequence[Exchange], sent: int) -> Finding:
    refused = expected is Expectation.ANSWERED
    return Finding(
        rule="refusal/unexpected" if refused else "refusal/missing",
        severity=Severity.AVAILABILITY if refused else Severity.ACCOUNTING,
        stratum=group,
        title=f"{len(members)} of {sent} requests in `{group}` were "
        + (
            "refused, and the probe expects answers"
            if refused
            else "answered, and the probe expects refusals"
        ),
        evidence=tuple(
            f"request {e.number}: {e.length_tokens:,} tokens, {e.outcome}, HTTP {e.status}"
            for e in members
        ),
        remedy="Raise what refuses these lengths, or correct what the probe expects of them."
        if refused
        else "Whatever should refuse these lengths does not see them: compare the limits of front door and "
        "workers (`kvcanary explain refusal/answered-over-limit`).",
        exchanges=tuple(e.number for e in members),
    )

"""Refusal shape: a prompt longer than a worker's limit has to be refused, fast and in so many words."""

from collections.abc import Sequence

from kvcanary.deployment.facts import Facts
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity


def over_limit(exchanges: Sequence[Exchange], facts: Facts) -> tuple[Exchange, ...]:
    """Exchanges longer than what every worker accepts, where that is known."""
    limit = facts.limit_tokens
    if limit is None:
        return ()
    return tuple(e for e in exchanges if (e.planned_tokens or 0) > limit)


def findings(exchanges: Sequence[Exchange], facts: Facts) -> tuple[Finding, ...]:
    """An answer where a refusal was due (S30233), by stratum."""
    due = over_limit(exchanges, facts)
    found = []
    for group in sorted({e.group for e in due}):
        members = [e for e in due if e.group == group]
        answered = [e for e in members if e.answered or e.outcome == "truncated"]
        if answered:
            found.append(
                Finding(
                    rule="refusal/answered-over-limit",
                    severity=Severity.ACCOUNTING,
                    stratum=group,
                    title=f"{len(answered)} of {len(members)} prompts in `{group}` are longer than a "
                    "worker accepts and were answered all the same",
                    evidence=tuple(
                        f"request {e.number}: {e.length_tokens:,} tokens, limit "
                        f"{facts.limit_tokens:,}, HTTP {e.status}, finish {e.finish_reason}"
                        for e in answered
                    ),
                    remedy="The worker's refusal does not end the request: decode must not start after it. "
                    "SGLang 0.5.20 retires refusals at both queue doors.",
                    exchanges=tuple(e.number for e in answered),
                )
            )
    return tuple(found)

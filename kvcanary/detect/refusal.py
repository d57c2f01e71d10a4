"""Refusal shape: a prompt longer than a worker's limit has to be refused, fast and in so many words."""

from collections.abc import Sequence

from kvcanary.deployment.facts import Facts
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity, stratum_of


def over_limit(exchanges: Sequence[Exchange], facts: Facts) -> tuple[Exchange, ...]:
    """Exchanges that no worker accepts, wherever they are routed, as far as that is known."""
    limit = facts.surest_limit_tokens
    if limit is None:
        return ()
    return tuple(e for e in exchanges if (e.planned_tokens or 0) > limit)


def findings(exchanges: Sequence[Exchange], facts: Facts) -> tuple[Finding, ...]:
    """An answer where a refusal was due (S30233)."""
    due = over_limit(exchanges, facts)
    answered = [e for e in due if e.answered or e.outcome == "truncated"]
    if not answered:
        return ()
    return (
        Finding(
            rule="refusal/answered-over-limit",
            severity=Severity.ACCOUNTING,
            stratum=stratum_of((e.group for e in answered), "refusal"),
            title=f"{len(answered)} of {len(due)} prompts that no worker accepts "
            f"(more than {facts.surest_limit_tokens:,} tokens) were answered all the same",
            evidence=tuple(
                f"request {e.number} ({e.length_tokens:,} tokens): HTTP {e.status}, finish "
                f"{e.finish_reason}, usage {e.prompt_tokens} prompt tokens"
                for e in answered
            ),
            remedy="The worker's refusal does not end the request: decode must not start after it. "
            "SGLang 0.5.20 retires refusals at both queue doors.",
            exchanges=tuple(e.number for e in answered),
        ),
    )

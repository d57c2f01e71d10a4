"""Capacity: can every worker hold the longest request that the deployment promises?"""

from collections.abc import Sequence

from kvcanary.deployment.facts import Facts, Role
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Pools and limits below the promised context, and the window of lengths that makes dangerous."""
    context = facts.context_tokens
    if context is None:
        return ()
    found = []
    short = [w for w in facts.workers if w.pool_tokens is not None and w.pool_tokens < context]
    if short:
        evidence = [
            f"{w.role} worker {w.url}: KV pool {w.pool_tokens:,} tokens, accepts prompts up to "
            f"{'?' if w.limit_tokens is None else format(w.limit_tokens, ',')} ({w.source})"
            for w in short
        ]
        window = facts.danger_window
        if window:
            evidence.append(
                f"danger window: prompts of {window.first_tokens:,} to {window.last_tokens:,} tokens are "
                "refused by prefill and taken by decode"
            )
        worst = min(short, key=lambda w: w.pool_tokens or 0)
        found.append(
            Finding(
                rule="capacity/pool-below-context",
                severity=Severity.CAPACITY,
                stratum="capacity",
                title=f"the {worst.role} KV pool ({worst.pool_tokens:,} tokens) is smaller than the context "
                f"limit ({context:,})",
                evidence=tuple(evidence),
                remedy=f"Lower the context limit of every worker and of the front door to at most "
                f"{facts.limit_tokens or worst.pool_tokens:,} tokens, or give the pool the memory for one "
                "full-length request.",
            )
        )
    lower = [w for w in facts.workers if w.context_tokens and w.context_tokens < context]
    if lower:
        found.append(
            Finding(
                rule="capacity/context-below-promise",
                severity=Severity.CAPACITY,
                stratum="capacity",
                title=f"workers enforce a context of {min(w.context_tokens or 0 for w in lower):,} tokens, less "
                f"than the {context:,} that are promised",
                evidence=tuple(
                    f"{w.role} worker {w.url}: context limit {w.context_tokens:,}" for w in lower
                ),
                remedy=f"Promise no more than the workers take, or start them with it "
                f"(the promise comes from {facts.context_source}).",
            )
        )
    contexts = {w.context_tokens for w in facts.workers if w.context_tokens}
    if len(contexts) > 1:
        found.append(
            Finding(
                rule="capacity/contexts-differ",
                severity=Severity.CAPACITY,
                stratum="capacity",
                title="workers of one deployment enforce different context limits",
                evidence=tuple(
                    f"{w.role} worker {w.url}: context limit {w.context_tokens:,}"
                    for w in facts.workers
                    if w.context_tokens
                ),
                remedy="Start every worker with the same context length.",
            )
        )
    return tuple(found)


def refused_within_promise(
    exchanges: Sequence[Exchange], facts: Facts | None
) -> tuple[Finding, ...]:
    """Clean refusals of requests that the promised context has room for: honest, and a broken promise."""
    context = facts.context_tokens if facts else None
    if context is None:
        return ()
    refused = [
        e
        for e in exchanges
        if e.outcome == "refused"
        and e.planned_tokens
        and e.planned_tokens + e.max_tokens <= context
    ]
    if not refused:
        return ()
    limits = sorted(
        {e.refusal.limit_tokens for e in refused if e.refusal and e.refusal.limit_tokens}
    )
    named = f"; limit named: {', '.join(f'{n:,}' for n in limits)}" if limits else ""
    return (
        Finding(
            rule="capacity/refused-within-promise",
            severity=Severity.CAPACITY,
            stratum=refused[0].group,
            title=f"{len(refused)} requests within the promised context ({context:,} tokens) were refused",
            evidence=tuple(
                f"request {e.number} ({e.group}): {e.planned_tokens:,} tokens and {e.max_tokens} of output, "
                f"HTTP {e.status}{named}"
                for e in refused
            ),
            remedy="Promise what is served: lower the context limit of the front door to the limit that the "
            "refusals name, or give the workers the memory.",
            exchanges=tuple(e.number for e in refused),
        ),
    )


def assessed(facts: Facts) -> bool:
    """Whether each role's pool is known: one unknown worker makes the whole unknown."""
    roles = {w.role for w in facts.workers}
    complete = Role.UNIFIED in roles or {Role.PREFILL, Role.DECODE} <= roles
    known = all(w.pool_tokens is not None for w in facts.workers)
    return facts.context_tokens is not None and complete and known

"""Pool return: when all is answered, the pool is as empty as it was before.

Source: a10. Only workers that were idle before are judged: of others nobody can say whose the tokens are.
Pages that a prefix cache keeps and would give back are not counted as used by the engines.
"""

from kvcanary.deployment.facts import Facts
from kvcanary.verdict.findings import Finding, Severity

IDLE = 0.001
"""Part of a pool that may be in use in a worker that is idle."""
KEPT = 0.01
"""Part of a pool that is still in use afterwards, for it not to have come back."""


def findings(before: Facts | None, after: Facts | None) -> tuple[Finding, ...]:
    """A warning where pages stay in use that nobody should hold any more."""
    if before is None or after is None:
        return ()
    idle = {
        (w.role, w.url)
        for w in before.workers
        if w.used_tokens is not None and w.pool_tokens and w.used_tokens <= IDLE * w.pool_tokens
    }
    kept = [
        w
        for w in after.workers
        if (w.role, w.url) in idle and w.pool_tokens and (w.used_tokens or 0) > KEPT * w.pool_tokens
    ]
    if not kept:
        return ()
    return (
        Finding(
            rule="availability/pool-not-returned",
            severity=Severity.DEGRADED,
            stratum="deployment",
            title="pages are still in use after everything was answered, on workers that were idle before",
            evidence=tuple(
                f"{w.role} worker {w.url}: {w.used_tokens:,} of {w.pool_tokens:,} tokens in use"
                for w in kept
            ),
            remedy="Unless others began to use the deployment meanwhile: pages that never come back fill the "
            "pool in the end. See whether aborted and refused requests release what was reserved for them.",
        ),
    )

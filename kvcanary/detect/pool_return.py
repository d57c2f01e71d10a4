"""Pool return: when all is answered, the pool is as empty as it was before.

Source: a10. Only workers that were idle before are judged: of others nobody can say whose the tokens are.
Pages that a prefix cache keeps and would give back are not counted as used by the engines.
"""

from collections.abc import Sequence
from itertools import accumulate, takewhile

from kvcanary.deployment.facts import Facts
from kvcanary.record.window import Window
from kvcanary.verdict.findings import Finding, Severity

IDLE = 0.001
"""Part of a pool that may be in use in a worker that is idle."""
KEPT = 0.01
"""Part of a pool that is still in use afterwards, for it not to have come back."""


def findings(
    before: Facts | None, after: Facts | None, windows: Sequence[Window]
) -> tuple[Finding, ...]:
    """What stays in use that nobody should hold any more: availability where that was seen over stages in
    which nobody had an open request, else a warning."""
    return _lost(before, windows) or _not_returned(before, after)


def _lost(facts: Facts | None, windows: Sequence[Window]) -> tuple[Finding, ...]:
    """Decode's pools after each stage, up to the first that was not quiet: what is held after one stage and
    never comes back in all that follow, at least one more, is lost."""
    pool_tokens = facts.decode_pool_tokens if facts else None
    quiet = tuple(takewhile(lambda w: bool(w.quiet) and w.held_tokens is not None, windows))
    held = tuple(accumulate(w.held_tokens or 0 for w in quiet))
    if not pool_tokens or len(held) < 2:
        return ()
    lost_tokens = min(held[-2:])
    if lost_tokens <= KEPT * pool_tokens:
        return ()
    return (
        Finding(
            rule="availability/pages-lost",
            severity=Severity.AVAILABILITY,
            stratum="deployment",
            title=f"{lost_tokens:,} tokens' worth of decode's pages are held, and no request holds them",
            evidence=tuple(
                f"after `{w.group}` ({len(w.exchanges)} requests, none open before or after): {tokens:,} tokens "
                "more in use than at first"
                for w, tokens in zip(quiet, held, strict=True)
                if w.held_tokens
            ),
            remedy="Pages that never come back fill the pool in the end. See whether ended, aborted and refused "
            "requests release what was reserved for them; until that is mended, restart decode in time.",
        ),
    )


def _not_returned(before: Facts | None, after: Facts | None) -> tuple[Finding, ...]:
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

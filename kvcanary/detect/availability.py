"""Availability: requests that the deployment has to serve and did not."""

from collections.abc import Sequence

from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

FAILED = ("errored", "hung", "truncated")


def findings(exchanges: Sequence[Exchange], limit_tokens: int | None) -> tuple[Finding, ...]:
    """Hangs, errors and cut answers. What was not reached (proxies, overload) is not the engine's.

    Bystanders and what has to be refused have detectors of their own; nobody has to have optional features.
    """
    others = (Purpose.BYSTANDER, Purpose.SPOILT)
    failed = [
        e
        for e in exchanges
        if e.outcome in FAILED and e.purpose not in others and not e.unsupported
    ]
    found = []
    for group in sorted({e.group for e in failed}):
        members = [e for e in failed if e.group == group]
        sent = sum(e.group == group for e in exchanges)
        beyond = limit_tokens is not None and any(
            (e.planned_tokens or 0) > limit_tokens for e in members
        )
        # a stream that ends before any text may be a proxy's doing: too long a silence
        sure = [e for e in members if e.reason != "cut_before_text" and not e.hurried]
        found.append(
            Finding(
                rule="availability/not-served",
                severity=Severity.AVAILABILITY if len(sure) > 1 else Severity.DEGRADED,
                stratum=group,
                title=f"{len(members)} of {sent} requests in `{group}` were neither answered nor refused",
                evidence=tuple(
                    f"request {e.number}: {e.length_tokens:,} tokens, {e.outcome} ({e.reason}) "
                    f"after {e.total_seconds:.1f} s"
                    for e in members
                ),
                remedy="A prompt that is too long has to be refused at once with a 400 that names the limit: one "
                "role refuses while the other waits."
                if beyond
                else "A deadline of kvcanary's own passed too early: give more time (--deadline)."
                if all(e.hurried for e in members)
                else "See the engine's log at these times.",
                exchanges=tuple(e.number for e in members),
            )
        )
    return tuple(found)

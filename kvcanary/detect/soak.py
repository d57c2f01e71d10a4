"""Soak: answers do not get worse, nor slower, with the number of requests.

The first third of a long stratum against its last (exact tests, no distribution assumed). Warnings: what a
resource that runs out looks like before anything fails. Source: S36926, D7489; a soak of hundreds of answers.
"""

from collections.abc import Sequence
from statistics import median

from kvcanary.detect.exact import later
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

LEAST = 36
"""Answers of a stratum that there have to be."""
SURPRISING = 1e-4
SLOWER = 2.0
"""Times as slow that the last third has to be, at its median, with the middle third in between."""
LEAST_TIMED = 150
"""Answers of a stratum whose times are compared: others come and go in a shorter while."""
JUDGED = (Purpose.READER, Purpose.RETURN)


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Warnings for strata that get worse or slower from their first third to their last."""
    judged = [e for e in exchanges if e.purpose in JUDGED and e.answered]
    found: list[Finding] = []
    for group in sorted({e.group for e in judged}):
        members = sorted((e for e in judged if e.group == group), key=lambda e: e.started_at)
        if len(members) >= LEAST:
            third = len(members) // 3
            found += (
                *_worse(group, members[:third], members[-third:]),
                *_slower(group, members[:third], members[third:-third], members[-third:]),
            )
    return tuple(found)


def _worse(group: str, first: Sequence[Exchange], last: Sequence[Exchange]) -> tuple[Finding, ...]:
    before, after = ([e for e in part if e.read] for part in (first, last))
    lost = [e for e in after if not e.kept]
    earlier = sum(not e.kept for e in before)
    odds = later(earlier, len(before), len(lost), len(after))
    if odds > SURPRISING:
        return ()
    return (
        Finding(
            rule="soak/worse",
            severity=Severity.DEGRADED,
            stratum=group,
            title=f"answers in `{group}` get worse with the number of requests",
            evidence=(
                (
                    f"labels lost: {earlier} of {len(before)} in the first third, {len(lost)} of {len(after)} in "
                    f"the last; odds of chance {odds:.0e}"
                ),
            ),
            remedy="Restart a worker and compare: what recovers then was worn out in between.",
            exchanges=tuple(e.number for e in lost),
        ),
    )


def _slower(
    group: str, first: Sequence[Exchange], between: Sequence[Exchange], last: Sequence[Exchange]
) -> tuple[Finding, ...]:
    before, meanwhile, after = (_paces(part) for part in (first, between, last))
    if min(map(len, (before, meanwhile, after))) < LEAST_TIMED // 3:
        return ()
    if not median(before) <= median(meanwhile) <= median(after):
        return ()
    middle = median([*before, *after])
    slow = sum(pace > middle for pace in after)
    odds = later(sum(pace > middle for pace in before), len(before), slow, len(after))
    if odds > SURPRISING or median(after) < SLOWER * median(before):
        return ()
    return (
        Finding(
            rule="soak/slower",
            severity=Severity.DEGRADED,
            stratum=group,
            title=f"answers in `{group}` get slower with the number of requests",
            evidence=(
                (
                    f"seconds a token: {median(before):.4f} in the first third, {median(after):.4f} in the last "
                    f"(medians); odds of chance {odds:.0e}"
                ),
            ),
            remedy="Watch speculative acceptance, batch sizes and host memory of the decode workers over the run.",
            exchanges=tuple(e.number for e in last),
        ),
    )


def _paces(exchanges: Sequence[Exchange]) -> list[float]:
    """Seconds for a token of each answer, its first token's wait apart."""
    return [
        (e.total_seconds - e.first_token_seconds) / (e.completion_tokens - 1)
        for e in exchanges
        if e.first_token_seconds is not None
        and (e.completion_tokens or 0) > 4
        and e.completion_tokens is not None
    ]

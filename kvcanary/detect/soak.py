"""Soak: answers do not get worse, nor slower, with the number of requests.

The first part of a long stratum against its last (exact tests, no distribution assumed): what a resource
that runs out looks like before anything fails. Source: S36926, D7489; a soak of hundreds of answers.
"""

from collections.abc import Sequence
from statistics import median

from kvcanary.detect.exact import later
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

LEAST = 36
"""Answers of a stratum that there have to be."""
SURPRISING = 1e-4
PROVEN = 1e-6
"""Odds at or below which answers that get worse are no accident: labels were lost that were kept before."""
SLOWER = 2.0
"""Times as slow that the last fifth has to be as the first, at its median, with the rest in between."""
LEAST_TIMED = 150
"""Answers of a stratum whose times are compared: others come and go in a shorter while."""
JUDGED = (Purpose.READER, Purpose.RETURN)


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Strata that get worse from their first third to their last, or (a warning) slower."""
    judged = [e for e in exchanges if e.purpose in JUDGED and e.answered]
    found: list[Finding] = []
    for group in sorted({e.group for e in judged}):
        members = sorted((e for e in judged if e.group == group), key=lambda e: e.started_at)
        if len(members) >= LEAST:
            third, fifth = len(members) // 3, len(members) // 5
            found += (
                *_worse(group, members[:third], members[-third:]),
                *_slower(group, members[:fifth], members[fifth:-fifth], members[-fifth:]),
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
            severity=Severity.CORRUPTION if odds <= PROVEN else Severity.DEGRADED,
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
    if min(map(len, (before, meanwhile, after))) < LEAST_TIMED // 5:
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
                    f"seconds a token: {median(before):.4f} in the first fifth, {median(after):.4f} in the last "
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

"""Replay: a label that was kept at a text's first visit is kept when the very same text comes again.

The second time a prefix cache answers for most of it: pages that were written for the first visit, or that
came back from a host tier. Source: a5; S22819, V50749, S22811. The losses of a stratum that its first visits
kept are judged against this model's slips (exact binomial): many texts that lose their label together confirm
each other.
"""

from collections.abc import Sequence

from kvcanary.canary.odds import at_least
from kvcanary.detect.ownership import CONDEMN, GOOD_CONDITIONS, slip_rate
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

SURPRISING = 0.005
"""Odds below which losses are told of, though they condemn nobody."""


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Corruption where a stratum's losses are too many for slips; a warning where they are surprising."""
    kept = {e.number for e in exchanges if e.kept and e.text_of is None}
    warm = [e for e in exchanges if e.purpose is Purpose.RETURN and e.read and e.text in kept]
    good = [e for e in exchanges if e.purpose in GOOD_CONDITIONS and e.read]
    rate = slip_rate(good)
    groups = sorted({e.group for e in warm})
    found = []
    for group in groups:
        members = [e for e in warm if e.group == group]
        lost = [e for e in members if not e.kept]
        odds = len(groups) * at_least(len(lost), len(members), rate)
        if lost and odds <= SURPRISING:
            found.append(_finding(group, lost, len(members), rate, odds))
    return tuple(found)


def _finding(
    group: str, lost: Sequence[Exchange], visits: int, rate: float, odds: float
) -> Finding:
    condemned = odds <= CONDEMN
    return Finding(
        rule="replay/labels-lost" if condemned else "replay/labels-lost-undecided",
        severity=Severity.CORRUPTION if condemned else Severity.DEGRADED,
        stratum=group,
        title=f"{len(lost)} of {visits} texts in `{group}` lost the label that they had kept at their first visit",
        evidence=(
            *(
                f"request {e.number} ({e.length_tokens:,} tokens, {e.cached_tokens or 0:,} of them cached): the "
                f"text of request {e.text}, label at the {e.asked.value} lost"
                for e in lost
            ),
            f"if this model slips {rate:.0%} of the time, so many losses have odds of {odds:.0e}",
        ),
        remedy="Switch the prefix cache (or its host tier) off until it is known what comes back from it; "
        "compare with the same prompts sent with a cache salt of their own.",
        exchanges=tuple(e.number for e in lost),
    )

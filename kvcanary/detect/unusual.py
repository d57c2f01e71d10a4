"""What the answers of a stratum do and those in good conditions do not: any trait, one test.

Nothing here is wrong by itself: models chat, repeat themselves, answer in other languages, and gateways
have their ways. A trait tells only where this deployment shows it in long or busy conditions and not in
good ones. How often it does in good conditions is estimated by Laplace's rule; a stratum is told of when
the odds that so many answers have the trait (exact binomial, times the strata looked at) are small. What
any control does, too, is a habit; and strata much longer than everything in good conditions are not
compared: a model may be weak with length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcanary.canary.odds import at_least
from kvcanary.record.exchange import Exchange, Purpose

SURPRISING = 0.01
"""Odds below which a stratum is told of: a warning, which condemns nobody."""
LEAST_HITS = 2
LEAST_GOOD = 6
"""Answers in good conditions that there have to be."""
COMPARABLE = 4.0
"""Times as long as the longest answer in good conditions that an answer may be, to be compared."""
GOOD_CONDITIONS = (Purpose.CALIBRATION, Purpose.CONTROL, Purpose.BYSTANDER)
JUDGED = (Purpose.READER, Purpose.CONFIRMATION)

Trait = Callable[[Exchange], bool]


@dataclass(frozen=True, slots=True)
class Unusual:
    """A stratum: the exchanges that have the trait, of how many, and what good conditions show."""

    group: str
    having: tuple[Exchange, ...]
    answers: int
    good: int
    odds: float
    """That so many have it, if it were as common as in good conditions."""


def unusual(exchanges: Sequence[Exchange], trait: Trait) -> tuple[Unusual, ...]:
    """The strata that a trait sets apart."""
    good = [e for e in exchanges if e.purpose in GOOD_CONDITIONS and e.answered]
    if len(good) < LEAST_GOOD or any(trait(e) for e in good if e.purpose is Purpose.CONTROL):
        return ()
    rate = (sum(map(trait, good)) + 1) / (len(good) + 2)
    longest = COMPARABLE * max(e.length_tokens for e in good)
    judged = [
        e for e in exchanges if e.purpose in JUDGED and e.answered and e.length_tokens <= longest
    ]
    groups = sorted({e.group for e in judged})
    found = []
    for group in groups:
        members = [e for e in judged if e.group == group]
        having = tuple(e for e in members if trait(e))
        odds = len(groups) * at_least(len(having), len(members), rate)
        if len(having) >= LEAST_HITS and odds <= SURPRISING:
            found.append(Unusual(group, having, len(members), len(good), odds))
    return tuple(found)

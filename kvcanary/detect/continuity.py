"""Continuity: a long passage that is copied in order has no piece twice and none left out.

Source: a1 and a6 under saturation; V52360, S18701: a request that was preempted and resumed says its last
tokens again, or has lost some. Models slip when they copy, and then go on elsewhere; how often that is nearby,
so that it looks like a seam, is estimated from the same deployment's recitals in good conditions (Laplace's
rule, never below 5 %, as with labels). A stratum is judged by the odds that so many of its recitals are broken
(exact binomial, times the strata looked at).
"""

from collections.abc import Sequence
from itertools import product

from kvcanary.canary.odds import at_least
from kvcanary.detect.ownership import CONDEMN, GOOD_CONDITIONS, LEAST_SLIP_RATE
from kvcanary.detect.unusual import JUDGED, LEAST_GOOD, SURPRISING
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Corruption where the broken recitals of a stratum are too many for slips; a warning where they are
    surprising."""
    recitals = [e for e in exchanges if e.answered and e.recital]
    good = [e for e in recitals if e.purpose in GOOD_CONDITIONS]
    if len(good) < LEAST_GOOD:
        return ()
    judged = [e for e in recitals if e.purpose in JUDGED]
    groups = sorted({e.group for e in judged})
    found = []
    for (break_, words), group in product(_BREAKS.items(), groups):
        rate = max(LEAST_SLIP_RATE, (sum(map(break_, good)) + 1) / (len(good) + 2))
        members = [e for e in judged if e.group == group]
        broken = [e for e in members if break_(e)]
        tests = len(_BREAKS) * len(groups)
        odds = min(1.0, tests * at_least(len(broken), len(members), rate))
        if len(broken) > 1 and odds <= SURPRISING:
            share = f"{rate:.0%} of recitals do so in good conditions ({len(good)} seen)"
            title = f"{len(broken)} of {len(members)} long answers in `{group}` {words}"
            found.append(_finding(title, broken, odds, share))
    return tuple(found)


def _repeats(exchange: Exchange) -> bool:
    return exchange.recital is not None and exchange.recital.repeated > 0


def _skips(exchange: Exchange) -> bool:
    return exchange.recital is not None and exchange.recital.skipped > 0


_BREAKS = {_repeats: "say a piece twice", _skips: "leave a piece out"}


def _finding(title: str, broken: Sequence[Exchange], odds: float, share: str) -> Finding:
    condemned = odds <= CONDEMN
    return Finding(
        rule="continuity/broken" if condemned else "continuity/broken-undecided",
        severity=Severity.CORRUPTION if condemned else Severity.DEGRADED,
        stratum=broken[0].group,
        title=title,
        evidence=(*map(_line, broken), f"if {share}, so many have odds of {odds:.0e}"),
        remedy="Look for preemptions and retractions at these times: a request that is resumed has to go on "
        "exactly where it stopped. More room in the pool, or fewer requests at once, avoids them.",
        exchanges=tuple(e.number for e in broken),
    )


def _line(exchange: Exchange) -> str:
    recital = exchange.recital
    assert recital  # noqa: S101 - it is broken
    return (
        f"request {exchange.number}: {recital.copied:,} characters of its own text in order; "
        f"pieces said twice: {recital.repeated}, left out: {recital.skipped}"
    )

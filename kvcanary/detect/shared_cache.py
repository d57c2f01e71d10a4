"""Shared caches: a tenant's first visit with another tenant's text is no faster for that other's visit.

Both are sent with cache salts of their own, so a prefix cache has to keep them apart; one that does not tells
each tenant what others have sent (arXiv 2409.20002, PROMPTPEEK). Two signs: what the server counts as cached,
and the first token (exact rank test against first visits of the same lengths). Times only tell where the
same tenant's second visit shows that there is a cache to be seen.
"""

from collections.abc import Sequence
from statistics import median

from kvcanary.detect.cached import most_shared
from kvcanary.detect.exact import smaller
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.separation import Separation
from kvcanary.verdict.findings import Finding, Severity

LEAST_COUNTED = 2
FASTER = 1e-4
"""Odds of a difference in time, over the run, below which it is told of."""
SEEN = 1e-3
"""Odds below which the same tenant's second visits show that a cache is there."""


def findings(exchanges: Sequence[Exchange], separation: Separation) -> tuple[Finding, ...]:
    """One finding for each stratum of visitors that a cache answered for.

    Where the deployment file gives salts, they are a promise, and it fails isolation when counted tokens show
    it; salts that kvcanary made up nobody has promised to keep.
    """
    visitors = [e for e in exchanges if e.purpose is Purpose.VISITOR and e.manner.salted]
    groups = sorted({e.group for e in visitors})
    found = []
    for group in groups:
        mine = [e for e in visitors if e.group == group and e.answered]
        told = _counted(mine, exchanges) or _timed(mine, exchanges, len(groups))
        if told:
            found.append(_finding(group, mine, told, promised=separation.salts > 1))
    return tuple(found)


def _firsts(visitors: Sequence[Exchange], exchanges: Sequence[Exchange]) -> list[Exchange]:
    """First visits of the same probe: what no cache can answer for."""
    probes = {e.probe for e in visitors}
    texts = (Purpose.READER, Purpose.CONTROL)
    return [e for e in exchanges if e.probe in probes and e.purpose in texts and e.answered]


def _counted(visitors: Sequence[Exchange], exchanges: Sequence[Exchange]) -> tuple[str, ...]:
    most = most_shared(exchanges)
    first = _firsts(visitors, exchanges)
    if any((e.cached_tokens or 0) > most for e in first):  # some count the hand-over as cached
        return ()
    hits = [e for e in visitors if (e.cached_tokens or 0) > most]
    if len(hits) < LEAST_COUNTED:
        return ()
    return tuple(
        f"request {e.number}: {e.cached_tokens:,} of {e.length_tokens:,} tokens cached; only tenant "
        f"{e.tenant} had sent them, with another salt"
        for e in hits
    )


def _timed(
    visitors: Sequence[Exchange], exchanges: Sequence[Exchange], groups: int
) -> tuple[str, ...]:
    cold = _seconds(_firsts(visitors, exchanges))
    texts = {e.text for e in visitors}
    same = (e for e in exchanges if e.purpose is Purpose.RETURN and e.text in texts)
    warm, other = _seconds([e for e in same if e.answered]), _seconds(visitors)
    if not (cold and warm and other):
        return ()
    odds = groups * smaller(other, cold)
    halfway = (median(cold) + median(warm)) / 2
    if smaller(warm, cold) > SEEN or odds > FASTER or median(other) > halfway:
        return ()
    return (
        (
            f"first token after {median(other):.3f} s (median of {len(other)}); first visits take "
            f"{median(cold):.3f} s, the same tenant's second ones {median(warm):.3f} s; odds {odds:.0e}"
        ),
    )


def _seconds(exchanges: Sequence[Exchange]) -> list[float]:
    return [e.first_token_seconds for e in exchanges if e.first_token_seconds is not None]


def _finding(
    group: str, visitors: Sequence[Exchange], told: Sequence[str], *, promised: bool
) -> Finding:
    return Finding(
        rule="isolation/cache-shared" if promised else "isolation/cache-shared-unasked",
        severity=Severity.ACCOUNTING if promised else Severity.DEGRADED,
        stratum=group,
        title=f"a prefix cache answers one tenant in `{group}` with what another had sent, in spite of their "
        "cache salts",
        evidence=tuple(told),
        remedy="Who can time requests can learn what other tenants send. See that `cache_salt` reaches the "
        "engines (some routers drop it), or keep tenants' caches apart another way.",
        exchanges=tuple(e.number for e in visitors),
    )

"""Strays: parts of another live response inside a stream, told by the id that each part has.

A gateway that writes a piece of one stream to another hands its text to whoever reads that. Source: a11;
CVE-2026-92442. A stray stands between parts of the response itself, and its id is that of an answer that was
under way at the same time. Nothing is said where answers to requests that were alone have strays, too, or
where ids name no response: where two answers without strays share one.

The odds are the worst over every size of the space that ids might be drawn from. If it had ``K`` values, the
``n`` different ids of answers without strays would have been different with odds of at most
``exp(-n (n - 1) / 2 K)``, and ``h`` strays would have hit a live id with odds of at most ``(c / K) ^ h``,
``c`` being the geometric mean of the live ids beside each (times the ways to choose the ``h``).
"""

import math
from collections.abc import Sequence

from kvcanary.canary.odds import MIX_UP_BUDGET
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

SURPRISING = 0.01
"""Odds below which strays are told of: a single one is mostly a warning."""


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """One finding for the run: it is one gateway."""
    # what was sent under one name on purpose may have one id: vLLM makes ids of names
    named = [e for e in exchanges if e.answerer.response and not e.manner.one_name]
    strayed = [e for e in named if e.answerer.strays]
    clean = [e.answerer.response for e in named if not e.answerer.strays]
    alone = any(e.purpose is Purpose.CALIBRATION for e in strayed)
    if alone or not strayed or len(set(clean)) < len(clean):
        return ()
    hits = [e for e in strayed if _owners(e, named)]
    odds = _odds(hits, strayed, named, len(clean))
    if not hits or odds > SURPRISING:
        return ()
    leak = odds <= MIX_UP_BUDGET
    return (
        Finding(
            rule="isolation/foreign-chunk" if leak else "isolation/foreign-chunk-suspected",
            severity=Severity.LEAK if leak else Severity.DEGRADED,
            stratum=hits[0].group,
            title=f"{len(hits)} streams hold parts of another stream that was open at the same time",
            evidence=tuple(
                f"request {e.number} ({e.group}): parts with the id of the answer to request "
                + ", ".join(map(str, _owners(e, named)[:4]))
                for e in hits
            ),
            remedy="Look for the place where the gateway or router keeps open streams: a connection, a buffer or "
            "a request id that two of them share."
            + (" Until it is found, let no two tenants stream at the same time." if leak else ""),
            exchanges=tuple(e.number for e in hits),
            odds=odds,
        ),
    )


def _beside(exchange: Exchange, named: Sequence[Exchange]) -> list[Exchange]:
    """The other exchanges that were under way while this one was."""
    end = exchange.started_at + exchange.total_seconds
    return [
        other
        for other in named
        if other is not exchange
        and other.started_at <= end
        and exchange.started_at <= other.started_at + other.total_seconds
    ]


def _owners(exchange: Exchange, named: Sequence[Exchange]) -> list[int]:
    """Requests whose answers have an id that strayed into this one's."""
    strays = set(exchange.answerer.strays)
    return [o.number for o in _beside(exchange, named) if o.answerer.response in strays]


def _odds(
    hits: Sequence[Exchange], strayed: Sequence[Exchange], named: Sequence[Exchange], clean: int
) -> float:
    """See above: the maximum over ``K`` stands at ``K = n (n - 1) / 2 h``."""
    count, pairs = len(hits), clean * (clean - 1) / 2
    if not count or not pairs:
        return 1.0
    space = pairs / count
    chances = [len(_beside(e, named)) * len(e.answerer.strays) / space for e in hits]
    log = math.log(math.comb(len(strayed), count)) - count
    return math.exp(min(0.0, log + sum(map(math.log, chances))))

"""Exposure: how many tokens' worth of the pages an exchange read had belonged to another request.

The rule is the pigeonhole's: if H tokens were in use at once (whatever the allocator does, pages in use at
the same time are different pages), the pool holds P, and a later request reads R, then at least H + R - P
of what it reads had been written by somebody before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord


@dataclass(frozen=True, slots=True)
class Exposure:
    """``kind``: measured, estimated or unknown. ``tokens``: at least so many, for the shortest exchange."""

    kind: str
    tokens: int | None
    note: str


def exposure_of(record: RunRecord, members: Sequence[Exchange]) -> Exposure:
    """What is known of the exposure of a stratum. Every decode worker has a pool, and every DP rank of one."""
    water = record.high_water
    read = min((e.length_tokens for e in members if e.answered), default=0)
    if not read:
        return Exposure("unknown", None, "")
    if water is None:
        return Exposure("unknown", None, "the pool was not filled before")
    pool = record.facts.decode_pool_tokens if record.facts else None
    decoders = [w for w in record.facts.workers if w.role != "prefill"] if record.facts else []
    pools = max(
        sum(w.pools for w in decoders), len(record.topology.decode) if record.topology else 0
    )
    if pool is None or pools != 1:
        least = min(water.tokens // max(1, pools), read)
        where = "one pool whose" if pools <= 1 else f"that they lay evenly in {pools} pools, whose"
        return Exposure(
            "estimated",
            least,
            f"about {water.tokens:,} tokens were in flight at once; assumes {where} freed pages are used "
            "again before virgin ones",
        )
    least = max(0, min(read, water.tokens + read - pool))
    kind = "measured" if water.how == "measured" else "estimated"
    return Exposure(
        kind, least, f"{water.tokens:,} of {pool:,} tokens of the pool were in use at once"
    )

"""Exact tests for small samples: no distribution is assumed, only that order and labels mean nothing."""

from collections.abc import Sequence
from functools import cache
from math import comb


def smaller(some: Sequence[float], others: Sequence[float]) -> float:
    """Odds that so many of ``some`` would lie below ``others`` if both were alike (Mann-Whitney, exact).

    Ties count against it.

    >>> round(smaller([1, 2, 3], [4, 5, 6]), 3)
    0.05
    """
    if not some or not others:
        return 1.0
    above = sum(one >= other for one in some for other in others)
    ways = sum(_ways(len(some), len(others), u) for u in range(above + 1))
    return ways / comb(len(some) + len(others), len(some))


@cache
def _ways(some: int, others: int, above: int) -> int:
    """Orders of so many of each in which ``above`` pairs have the first kind above the second."""
    if above < 0:
        return 0
    if some == 0 or others == 0:
        return int(above == 0)
    return _ways(some - 1, others, above - others) + _ways(some, others - 1, above)


def later(early_hits: int, early: int, late_hits: int, late: int) -> float:
    """Odds that so many of all hits fall on the late ones by chance (Fisher, exact, one-sided).

    >>> round(later(0, 4, 4, 4), 4)
    0.0143
    """
    hits = early_hits + late_hits
    if not early or not late or not hits:
        return 1.0
    ways = sum(comb(late, k) * comb(early, hits - k) for k in range(late_hits, min(late, hits) + 1))
    return ways / comb(early + late, hits)

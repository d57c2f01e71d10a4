"""How full each rank of a worker is, from a page of metrics.

A direct scrape and a Prometheus server give the same `Exposition`, so both are read here.
"""

import math
from collections.abc import Iterable, Sequence

from kvcanary.engines.exposition import Exposition, Malformed, Sample, parse
from kvcanary.engines.gauges import GAUGES, MAX_COUNT, MAX_RANKS, Gauges, Level, gauges_of, larger

WANTED = frozenset[str]().union(*(gauges.metrics for gauges in GAUGES))
"""The metrics that are read."""


def levels_in_text(text: str) -> tuple[Level, ...]:
    """The ranks of a ``/metrics`` page, sorted; empty when it is no page of an engine that is known."""
    page = parse(text, only=WANTED)
    return () if isinstance(page, Malformed) else levels_in(page)


def levels_in(page: Exposition) -> tuple[Level, ...]:
    """The ranks of a page, sorted; empty when it is no page of an engine that is known."""
    gauges = gauges_of({sample.name for sample in page.samples} & WANTED)
    if gauges is None:
        return ()
    by_rank: dict[int | None, list[Sample]] = {}
    for sample in page.samples:
        if sample.name in gauges.metrics:
            by_rank.setdefault(_number(sample.label(gauges.rank_label)), []).append(sample)
    numbered = sorted(rank for rank in by_rank if rank is not None)[:MAX_RANKS]
    if len(numbered) <= 1:  # one rank: what has no label of it is its own too
        return (_level(None, page.samples, gauges),)
    return tuple(_level(rank, by_rank[rank], gauges) for rank in numbered)


def _level(rank: int | None, samples: Sequence[Sample], gauges: Gauges) -> Level:
    pool = _first(samples, gauges.pool, gauges) or _pool_in_label(samples, gauges)
    used = _first(samples, gauges.used, gauges)
    if used is None and pool is not None:
        share = _value(samples, gauges.share, gauges)
        used = round(share * pool) if share is not None and 0 <= share <= 1 else None
    queued = _first(samples, gauges.queued, gauges)
    return Level(
        rank=rank,
        pool_tokens=pool or None,
        used_tokens=used,
        running=_first(samples, gauges.running, gauges),
        queued=larger(queued, _sum(samples, gauges.handing_over, gauges)),
        failures=_sum(samples, gauges.failures, gauges),
    )


def _first(samples: Sequence[Sample], names: Iterable[str], gauges: Gauges) -> int | None:
    return _whole(_value(samples, names, gauges))


def _sum(samples: Sequence[Sample], names: Iterable[str], gauges: Gauges) -> int | None:
    told = [_whole(_value(samples, (name,), gauges)) for name in names]
    known = [value for value in told if value is not None]
    return sum(known) if known else None


def _value(samples: Sequence[Sample], names: Iterable[str], gauges: Gauges) -> float | None:
    """The first of these metrics that is there, of the first scheduler: the others tell the same."""
    for name in names:
        found = [sample for sample in samples if sample.name == name]
        if found:
            return min(found, key=lambda sample: _copy(sample, gauges)).value
    return None


def _copy(sample: Sample, gauges: Gauges) -> tuple[int, ...]:
    return tuple(_number(sample.label(label)) or 0 for label in gauges.copy_labels)


def _pool_in_label(samples: Sequence[Sample], gauges: Gauges) -> int | None:
    if gauges.pool_label is None:
        return None
    metric, label = gauges.pool_label
    told = (_number(s.label(label), digits=15) for s in samples if s.name == metric)
    return next((pool for pool in told if pool is not None), None)


def _whole(value: float | None) -> int | None:
    if value is None or not math.isfinite(value) or not 0 <= value < MAX_COUNT:
        return None
    return int(value) if value == int(value) else None


def _number(label: str | None, digits: int = 6) -> int | None:
    fits = label is not None and len(label) <= digits and label.isascii() and label.isdigit()
    return int(label) if fits and label is not None else None

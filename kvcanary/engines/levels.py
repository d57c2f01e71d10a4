"""How full each rank of a worker is, from a page of metrics.

A direct scrape and a Prometheus server give the same `Exposition`, so both are read here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvcanary.deployment.facts import Worker
from kvcanary.engines import catalogue, sglang
from kvcanary.engines.documents import Documents, Want, in_label
from kvcanary.engines.exposition import Exposition, Sample
from kvcanary.engines.gauges import (
    GAUGES,
    MAX_COUNT,
    MAX_RANKS,
    Gauges,
    Level,
    gauges_of,
    larger,
    levels_in_loads,
)

PAGE = Want("/metrics", metrics=True)
WANTED = frozenset[str]().union(*(gauges.metrics for gauges in GAUGES))
"""The metrics that are read."""
MAX_DIGITS = 6
"""Of a rank."""


def wants_of(engine: str) -> tuple[Want, ...]:
    """What to ask a worker of this engine for, to know how full it is."""
    known = catalogue.named(engine)
    return known.use if known and known.use else (PAGE,)


def levels_of(worker: Worker, documents: Documents) -> tuple[Level, ...]:
    """The ranks of a worker as its documents tell them, sorted; empty when they tell nothing.

    SGLang brings the gauges of its metrics up to date when it logs, and answers ``/v1/loads`` at once. So
    the latter's figures count, beside the failures that only the former has.
    """
    page = levels_in(documents.page(PAGE))
    loads = levels_in_loads(documents.value(sglang.LOADS))
    if loads:
        failures = {level.rank: level.failures for level in page}
        return tuple(replace(level, failures=failures.get(level.rank)) for level in loads)
    engine = catalogue.named(worker.engine)
    if page or engine is None:
        return page
    told = engine.worker(worker.url, documents, worker.role)
    if told.used_tokens is None:
        return ()
    pool = told.pool_tokens if told.pools == 1 else None
    return (Level(None, pool_tokens=pool, used_tokens=told.used_tokens),)


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
    metric, size, kept = gauges.pool_label
    row = next((sample for sample in samples if sample.name == metric), None)
    told = [in_label(row, label) if row else None for label in (size, kept)]
    return told[0] - told[1] if told[0] and told[1] and told[0] > told[1] else None


def _whole(value: float | None) -> int | None:
    if value is None or not math.isfinite(value) or not 0 <= value < MAX_COUNT:
        return None
    return int(value) if value == int(value) else None


def _number(label: str | None) -> int | None:
    fits = label is not None and len(label) <= MAX_DIGITS and label.isascii() and label.isdigit()
    return int(label) if fits and label is not None else None

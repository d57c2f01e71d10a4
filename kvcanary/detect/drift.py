"""Drift: what is different from an earlier run of the same deployment.

Workers are matched by role and address, then, for what is left, by role and order: addresses change with
every roll-out of pods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvcanary.deployment.facts import Facts, Parallelism, Worker
from kvcanary.record.baseline import Baseline
from kvcanary.verdict.findings import Finding, Severity

SPREAD = 0.01
"""Part of a pool by which one start of an engine may differ from the next: it takes what memory is free."""
_COMPARED = (
    ("engine", "engine"),
    ("version", "version"),
    ("model", "model"),
    ("context_tokens", "context limit"),
    ("limit_tokens", "longest prompt"),
    ("page_tokens", "page"),
)


@dataclass(frozen=True, slots=True)
class Match:
    """One worker then and now; None where there is none any more, or was none."""

    then: Worker | None
    now: Worker | None


def matched(then: Sequence[Worker], now: Sequence[Worker]) -> tuple[Match, ...]:
    """Every worker of both runs, once."""
    old, new = list(then), list(now)
    found: list[Match] = []
    for same_address in (True, False):
        for worker in tuple(new):
            other = next(
                (
                    o
                    for o in old
                    if o.role is worker.role and (not same_address or o.url == worker.url)
                ),
                None,
            )
            if other:
                found.append(Match(other, worker))
                old.remove(other)
                new.remove(worker)
    found += [Match(worker, None) for worker in old]
    found += [Match(None, worker) for worker in new]
    return tuple(found)


def findings(baseline: Baseline | None, facts: Facts | None, site_key: str) -> tuple[Finding, ...]:
    """A pool that shrank, even if it still fits, and whatever else is different.

    ``site_key``: fingerprint of the key that made the configurations of ``facts``.
    """
    if baseline is None or facts is None:
        return ()
    pairs = matched(baseline.facts.workers, facts.workers)
    found = (_shrunk(pairs, baseline), _changed(pairs, baseline, facts, site_key))
    return tuple(finding for finding in found if finding)


def _shrunk(pairs: Sequence[Match], baseline: Baseline) -> Finding | None:
    lines, worst, urls = [], 0.0, []
    for pair in pairs:
        for label, was, now in _pools(pair):
            if now < was:
                worst = max(worst, 1 - now / was)
                urls += [pair.now.url] if pair.now else []
                lines.append(f"{label}: pool was {was:,} tokens, is {now:,} ({now / was - 1:+.1%})")
    if not lines:
        return None
    return Finding(
        rule="drift/pool-shrank",
        severity=Severity.CAPACITY if worst > SPREAD else Severity.DEGRADED,
        stratum="drift",
        title=f"a KV pool is {worst:.1%} smaller than in run {baseline.run:07x}",
        evidence=tuple(lines),
        remedy="Find out what took the memory: another version or setting (see drift/deployment-changed), "
        "another process, a GPU. If this is how it shall be, make this run's record the new baseline.",
        workers=tuple(dict.fromkeys(urls)),
    )


def _pools(pair: Match) -> Iterator[tuple[str, int, int]]:
    """Pools that both runs know: by rank where both tell ranks apart, else the smallest."""
    if pair.then is None or pair.now is None:
        return
    name = f"{pair.now.role} worker {pair.now.url}"
    old = {r.rank: r.pool_tokens for r in pair.then.ranks}
    new = {r.rank: r.pool_tokens for r in pair.now.ranks}
    if old and old.keys() == new.keys():
        for rank, was in old.items():
            now = new[rank]
            if was and now is not None:
                yield f"{name}, DP rank {rank}" if len(old) > 1 else name, was, now
    elif pair.then.pool_tokens and pair.now.pool_tokens is not None:
        yield name, pair.then.pool_tokens, pair.now.pool_tokens


def _changed(
    pairs: Sequence[Match], baseline: Baseline, facts: Facts, site_key: str
) -> Finding | None:
    lines = list(_promise(baseline.facts, facts))
    for pair in pairs:
        if pair.now is None and pair.then:
            lines.append(f"{pair.then.role} worker {pair.then.url} is gone")
        elif pair.then is None and pair.now:
            lines.append(f"{pair.now.role} worker {pair.now.url} is new")
        elif pair.then and pair.now:
            lines += _differences(pair.then, pair.now)
            if baseline.site_key == site_key:
                lines += _arguments(pair.then, pair.now)
    if not lines:
        return None
    return Finding(
        rule="drift/deployment-changed",
        severity=Severity.DEGRADED,
        stratum="drift",
        title=f"the deployment is not the one of run {baseline.run:07x}",
        evidence=tuple(lines),
        remedy="If the change was meant, make this run's record the new baseline. If not, find out who "
        "changed it: what the earlier run showed does not hold for this one.",
    )


def _promise(then: Facts, now: Facts) -> Iterator[str]:
    was, is_now = then.context_tokens, now.context_tokens
    if None not in (was, is_now) and was != is_now:
        yield f"promised context was {was:,} tokens, is {is_now:,}"


def _differences(then: Worker, now: Worker) -> Iterator[str]:
    """What both runs tell, and tell differently; and a pool that is not told any more."""
    name = f"{now.role} worker {now.url}"
    for field, word in _COMPARED:
        was, is_now = getattr(then, field), getattr(now, field)
        if was == is_now:
            continue
        if None not in (was, is_now):
            yield f"{name}: {word} was {_shown(was)}, is {_shown(is_now)}"
    for way in Parallelism.model_fields:
        was, is_now = getattr(then.parallelism, way), getattr(now.parallelism, way)
        if None not in (was, is_now) and was != is_now:
            yield f"{name}: {way} parallelism was {was}, is {is_now}"
    old_pool, new_pool = then.pool_tokens, now.pool_tokens
    if old_pool is not None and new_pool is None:
        yield f"{name}: pool was {old_pool:,} tokens, is unknown"
    elif old_pool is not None and new_pool is not None and new_pool > old_pool:
        yield f"{name}: pool was {old_pool:,} tokens, is {new_pool:,}"


def _arguments(then: Worker, now: Worker) -> Iterator[str]:
    was, is_now = then.configuration, now.configuration
    if None not in (was, is_now) and was != is_now:
        yield f"{now.role} worker {now.url}: its arguments are different"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)

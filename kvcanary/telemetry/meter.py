"""Tells which workers served a request, from the growth of their counters around it.

Router and gateway say nothing of it, so every worker is read before and after a request that is sent alone.
Exactly one prefill rank that read something and one decode rank that wrote something make a pair; with
other traffic in between, the one whose growth fits the request, or nobody.

The same readings, before and after a stage of requests, tell how much work it was for each role.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvcanary.deployment.facts import Facts, Role, Worker, worker_names
from kvcanary.probing.client import Client
from kvcanary.record.meeting import Pair, Topology
from kvcanary.record.window import Work
from kvcanary.telemetry.counters import RankCounters, WorkerCounters, moved, read_counters

Reading = Mapping[str, WorkerCounters | None]
"""By worker URL."""

FITS = 0.5
"""Part of a request's tokens by which a counter has to grow to be that request's, beside other traffic."""

LOOKS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses between looks at the counters until they stand still. Engines count a request a moment after its
last token has left them."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A reading, and whether it was taken in quiet: no open request, and every counter as a look before.
    None: some worker does not tell."""

    reading: Reading
    is_quiet: bool | None


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads the counters of all workers."""

    client: Client
    workers: tuple[Worker, ...]
    names: Mapping[str, str]
    """Short names by URL: P1, P2, D1 ... or W1 for unified workers."""
    topology: Topology
    with_key: bool

    async def read(self) -> Reading:
        """All workers at once."""
        readings = await asyncio.gather(
            *(
                read_counters(self.client, w.url, metrics_url=w.metrics_url, with_key=self.with_key)
                for w in self.workers
            )
        )
        return {w.url: reading for w, reading in zip(self.workers, readings, strict=True)}

    async def quiet(self) -> Quiet:
        """Look until all workers are quiet, or no longer than about a second and a half."""
        reading = await self.read()
        for pause in LOOKS_SECONDS:
            await asyncio.sleep(pause)
            last, reading = reading, await self.read()
            is_quiet = _is_quiet(last, reading)
            if is_quiet is not False:
                break
        return Quiet(reading, is_quiet)

    def work(self, before: Reading, after: Reading, role: Role) -> Work | None:
        """What all workers of a role did between the readings (for decode, unified workers too); None
        where there is none, or one did not tell or began anew."""
        roles = (role,) if role is Role.PREFILL else (role, Role.UNIFIED)
        steps = [
            moved(old, new) if (old := before.get(w.url)) and (new := after.get(w.url)) else None
            for w in self.workers
            if w.role in roles
        ]
        if not steps or None in steps:
            return None
        return Work(
            requests=_sum(step.requests for step in steps if step),
            prompt_tokens=_sum(step.prompt_tokens for step in steps if step),
            generation_tokens=_sum(step.generation_tokens for step in steps if step),
        )

    def held(self, before: Reading, after: Reading) -> int | None:
        """By how many tokens the use of the decode workers' pools grew."""
        grown = [
            _less(_used(after.get(w.url)), _used(before.get(w.url)))
            for w in self.workers
            if w.role is not Role.PREFILL
        ]
        return _sum(grown) if grown else None

    def pair(
        self, before: Reading, after: Reading, prompt_tokens: int, completion_tokens: int
    ) -> Pair | None:
        """Who served the one request between the readings; None where that cannot be told."""
        prefill = self._who(before, after, "prompt_tokens", prompt_tokens, Role.PREFILL)
        decode = self._who(before, after, "generation_tokens", completion_tokens, Role.DECODE)
        return Pair(prefill=prefill, decode=decode) if prefill and decode else None

    def decoders(self, before: Reading, after: Reading) -> tuple[str, ...]:
        """Decode ranks that wrote anything between the readings."""
        grown = self._grown(before, after, "generation_tokens", Role.DECODE)
        return tuple(sorted(name for name, amount in grown.items() if amount > 0))

    def _who(
        self, before: Reading, after: Reading, field: str, tokens: int, role: Role
    ) -> str | None:
        grown = {n: a for n, a in self._grown(before, after, field, role).items() if a > 0}
        if len(grown) > 1:
            grown = {name: amount for name, amount in grown.items() if amount >= FITS * tokens}
        return next(iter(grown)) if len(grown) == 1 else None

    def _grown(self, before: Reading, after: Reading, field: str, role: Role) -> dict[str, float]:
        """Growth of a counter by rank; a worker that did not tell makes the whole unknown (empty)."""
        grown: dict[str, float] = {}
        for worker in self.workers:
            if worker.role not in (role, Role.UNIFIED):
                continue
            old, new = before.get(worker.url), after.get(worker.url)
            step = moved(old, new) if old and new else None
            if step is None or len(step.ranks) < worker.pools:
                return {}
            for rank in step.ranks:
                amount = getattr(rank, field)
                if amount is None:
                    return {}
                grown[_rank_name(self.names[worker.url], rank, step.ranks)] = amount
        return grown


def _is_quiet(before: Reading, after: Reading) -> bool | None:
    counters = list(after.values())
    if not all(counters) or any(c and c.open_requests is None for c in counters):
        return None
    return before == after and not any(c and c.open_requests for c in counters)


def _used(counters: WorkerCounters | None) -> int | None:
    return counters.used_tokens if counters else None


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _sum(values: Iterable[float | None]) -> int | None:
    known = list(values)
    return None if None in known else round(sum(value for value in known if value is not None))


async def make_meter(client: Client, facts: Facts, *, with_key: bool) -> Meter | None:
    """A meter over the discovered workers; None where there are none."""
    if not facts.workers:
        return None
    names = short_names(facts.workers)
    bare = Meter(
        client, facts.workers, names, Topology(prefill=(), decode=(), visible=False), with_key
    )
    reading = await bare.read()
    topology = Topology(
        prefill=tuple(_ranks(facts.workers, names, reading, Role.PREFILL)),
        decode=tuple(_ranks(facts.workers, names, reading, Role.DECODE)),
        visible=all(_tells_ranks(worker, reading) for worker in facts.workers),
    )
    return Meter(client, facts.workers, names, topology, with_key)


def short_names(workers: Sequence[Worker]) -> dict[str, str]:
    """The workers' short names by URL."""
    return dict(zip((w.url for w in workers), worker_names(workers), strict=True))


def _ranks(
    workers: Iterable[Worker], names: Mapping[str, str], reading: Reading, role: Role
) -> Iterable[str]:
    """Every rank that may serve a request, also of workers whose counters do not tell ranks apart."""
    for worker in workers:
        if worker.role in (role, Role.UNIFIED):
            counters, name = reading.get(worker.url), names[worker.url]
            if counters is not None and _tells_ranks(worker, reading):
                yield from (_rank_name(name, r, counters.ranks) for r in counters.ranks)
            elif worker.pools == 1:
                yield name
            else:
                yield from (f"{name}.{rank}" for rank in range(worker.pools))


def _tells_ranks(worker: Worker, reading: Reading) -> bool:
    """Whether its counters can be read, and tell all ranks apart that it has."""
    counters = reading.get(worker.url)
    return counters is not None and len(counters.ranks) >= worker.pools


def _rank_name(worker: str, rank: RankCounters, ranks: tuple[RankCounters, ...]) -> str:
    return worker if len(ranks) == 1 else f"{worker}.{rank.rank}"

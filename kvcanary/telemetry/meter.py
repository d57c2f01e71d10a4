"""Tells which workers served a request, from the growth of their counters around it.

Router and gateway say nothing of it, so every worker is read before and after a request that is sent alone.
Exactly one prefill rank that read something and one decode rank that wrote something make a pair; with
other traffic in between, the one whose growth fits the request, or nobody.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.probing.client import Client
from kvcanary.record.meeting import Pair, Topology
from kvcanary.telemetry.counters import RankCounters, WorkerCounters, moved, read_counters

Reading = Mapping[str, WorkerCounters | None]
"""By worker URL."""

FITS = 0.5
"""Part of a request's tokens by which a counter has to grow to be that request's, beside other traffic."""


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
            *(read_counters(self.client, w.url, with_key=self.with_key) for w in self.workers)
        )
        return {w.url: reading for w, reading in zip(self.workers, readings, strict=True)}

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
            if step is None:
                return {}
            for rank in step.ranks:
                amount = getattr(rank, field)
                if amount is None:
                    return {}
                grown[_rank_name(self.names[worker.url], rank, step.ranks)] = amount
        return grown


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
        visible=all(reading.values()),
    )
    return Meter(client, facts.workers, names, topology, with_key)


def short_names(workers: Iterable[Worker]) -> dict[str, str]:
    """P1, P2, D1 ... or W1 for unified workers, by URL."""
    letters = {Role.PREFILL: "P", Role.DECODE: "D", Role.UNIFIED: "W"}
    counts = dict.fromkeys(Role, 0)
    names = {}
    for worker in workers:
        counts[worker.role] += 1
        names[worker.url] = f"{letters[worker.role]}{counts[worker.role]}"
    return names


def _ranks(
    workers: Iterable[Worker], names: Mapping[str, str], reading: Reading, role: Role
) -> Iterable[str]:
    for worker in workers:
        if worker.role in (role, Role.UNIFIED):
            counters = reading.get(worker.url)
            if counters is None:
                yield names[worker.url]
            else:
                yield from (
                    _rank_name(names[worker.url], r, counters.ranks) for r in counters.ranks
                )


def _rank_name(worker: str, rank: RankCounters, ranks: tuple[RankCounters, ...]) -> str:
    return worker if len(ranks) == 1 else f"{worker}.{rank.rank}"

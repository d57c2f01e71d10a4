"""Who served a request, from counters alone: beside other traffic the one that fits, or nobody."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from kvcanary.deployment.facts import Parallelism, Role, Worker
from kvcanary.probing.client import Client
from kvcanary.record.meeting import Topology
from kvcanary.telemetry import meter
from kvcanary.telemetry.counters import RankCounters, WorkerCounters
from kvcanary.telemetry.meter import Meter, Reading, make_meter
from tests.builders import facts, worker

NAMES = {"p1": "P1", "p2": "P2", "d1": "D1", "d2": "D2"}


def workers() -> tuple[Worker, ...]:
    roles = {"p": Role.PREFILL, "d": Role.DECODE}
    return tuple(worker(roles[url[0]], url=url) for url in NAMES)


METER = Meter(
    client=cast("Client", None),
    workers=workers(),
    names=NAMES,
    topology=Topology(prefill=("P1", "P2"), decode=("D1", "D2"), visible=True),
    with_key=False,
)


def reading(tokens: dict[str, float | None] | None = None, started: float = 1.0) -> Reading:
    """Tokens counted by each worker; None: it does not tell."""
    counters: dict[str, WorkerCounters | None] = {}
    for url in NAMES:
        count = (tokens or {}).get(url, 0.0)
        if count is None:
            counters[url] = None
            continue
        row = RankCounters(None, count, count, 1)
        counters[url] = WorkerCounters(url, started, (row,))
    return counters


@pytest.mark.parametrize(
    ("after", "pair"),
    [
        ({"p1": 5_000, "d2": 20}, "P1-D2"),
        ({"p1": 5_000, "p2": 300, "d2": 20, "d1": 3}, "P1-D2"),  # small traffic beside it
        ({"p1": 5_000, "p2": 4_000, "d2": 20}, None),  # large traffic: it may be either
        ({"p1": 2_000, "p2": 2_000, "d2": 20}, None),  # two, and neither fits
        ({"p1": 5_000}, None),  # nobody wrote anything
        ({"d1": 20}, None),
        ({}, None),
        ({"p1": 5_000, "d2": 20, "d1": None}, None),  # the silent one may have had it
        ({"p1": 5_000, "p2": None, "d2": 20}, None),
    ],
)
def test_who_served_it(after: dict[str, float | None], pair: str | None) -> None:
    met = METER.pair(reading(), reading(after), 5_000, 20)
    assert (str(met) if met else None) == pair


def test_a_worker_that_began_anew_in_between_tells_nothing() -> None:
    done: dict[str, float | None] = {"p1": 5_000, "d1": 20}
    assert METER.pair(reading(), reading(done, started=2.0), 5_000, 20) is None
    assert METER.pair(reading({"p1": 9_000}), reading(done), 5_000, 20) is None


def test_counters_that_do_not_tell_ranks_apart_tell_nobody() -> None:
    """One row for a worker of four ranks: any of them may have had it."""
    ranked = tuple(
        w.model_copy(update={"parallelism": Parallelism(data=4)}) if w.url == "d2" else w
        for w in workers()
    )
    blind = replace(METER, workers=ranked)
    assert blind.pair(reading(), reading({"p1": 5_000, "d2": 20}), 5_000, 20) is None


@pytest.mark.parametrize("told", [True, False], ids=["counted", "silent"])
def test_the_topology_has_every_rank(monkeypatch: pytest.MonkeyPatch, *, told: bool) -> None:
    async def one_row(_client: Client, url: str, **_: object) -> WorkerCounters | None:
        row = RankCounters(None, 0, 0, 0)
        return WorkerCounters(url, 1.0, (row,)) if told else None

    monkeypatch.setattr(meter, "read_counters", one_row)
    one = worker(Role.DECODE, url="d", parallelism=Parallelism(data=2))
    made = asyncio.run(
        make_meter(cast("Client", None), facts(worker(Role.PREFILL, url="p"), one), with_key=False)
    )
    assert made is not None
    assert made.topology == Topology(prefill=("P1",), decode=("D1.0", "D1.1"), visible=False)

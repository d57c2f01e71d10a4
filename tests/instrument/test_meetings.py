"""Who met whom: what the record says, against what the lab's workers saw."""

import pytest

from kvcanary.lab import Routing
from kvcanary.probing.client import Client
from kvcanary.record.exchange import Exchange
from kvcanary.record.meeting import Pair, Topology
from kvcanary.telemetry import meter
from kvcanary.verdict.claims import ExitCode, Status, Stratum
from kvcanary.verdict.findings import Severity
from tests.instrument.lab_runs import Ran, Setup, ran

FOUR_PAIRS = {"P1-D1", "P1-D2", "P2-D1", "P2-D2"}
SINGLY = ("reader", "control", "confirmation")


def true_pair(run: Ran, exchange: Exchange) -> Pair | None:
    """From the lab's own book; a worker with one rank goes by its name alone."""
    route = run.lab.truth.route(exchange.name)
    topology = run.record.topology
    if route is None or topology is None:
        return None

    def name(worker: str, rank: int, known: tuple[str, ...]) -> str:
        return worker if worker in known else f"{worker}.{rank}"

    return Pair(
        prefill=name(route.prefill, route.prefill_rank, topology.prefill),
        decode=name(route.decode, route.decode_rank, topology.decode),
    )


def assert_true(run: Ran) -> None:
    """Every answered request that was sent alone was seen, and seen where it was."""
    singly = [e for e in run.sent(*SINGLY) if e.answered]
    assert singly
    for exchange in singly:
        assert exchange.met is not None
        assert exchange.met == true_pair(run, exchange)


def readers(run: Ran) -> list[Stratum]:
    return [s for s in run.verdict.strata if s.purpose == "reader"]


def met(stratum: Stratum) -> set[str]:
    return {p.pair for p in stratum.pairs if p.measured}


@pytest.mark.parametrize("routing", [Routing.ROUND_ROBIN, Routing.RANDOM])
def test_a_router_that_spreads_is_met_in_every_pair(routing: Routing) -> None:
    run = ran(Setup("2x2", routing=routing))
    assert_true(run)
    for stratum in readers(run):
        assert {p.pair for p in stratum.pairs} == FOUR_PAIRS
        if run.code is ExitCode.PASS:
            assert met(stratum) == FOUR_PAIRS
    if routing is Routing.ROUND_ROBIN:
        assert run.code is ExitCode.PASS


@pytest.mark.parametrize(
    ("routing", "seen"),
    [
        (Routing.LOCKSTEP, {"P1-D1", "P2-D2"}),
        (Routing.LEAST_LOAD, {"P1-D1"}),
        (Routing.CACHE_AWARE, None),
    ],
)
def test_pairs_that_a_router_couples_are_named_and_nothing_passes(
    routing: Routing, seen: set[str] | None
) -> None:
    run = ran(Setup("2x2", routing=routing))
    assert_true(run)
    assert run.accused == set()
    assert run.code is ExitCode.INCONCLUSIVE
    assert run.claim("ownership").status is Status.INCONCLUSIVE
    for stratum in readers(run):
        assert seen is None or met(stratum) == seen
        for pair in FOUR_PAIRS - met(stratum):
            assert pair in run.claim("ownership").text


def test_the_one_short_worker_is_the_one_whose_pairs_lose() -> None:
    run = ran(Setup("2x2-one-short", suite="check"))
    assert_true(run)
    assert run.code is ExitCode.VIOLATION
    assert Severity.CORRUPTION in run.accused
    for stratum in readers(run):
        for pair in stratum.pairs:
            if pair.pair.startswith("P2"):
                assert pair.measured, "the short worker was met"
                assert pair.lost == pair.measured
            else:
                assert pair.lost < max(2, pair.measured)


def test_every_rank_is_met_and_is_a_pool_of_its_own() -> None:
    run = ran(Setup("dp4"))
    assert_true(run)
    assert run.code is ExitCode.PASS
    for stratum in readers(run):
        assert met(stratum) == {f"P1-D1.{rank}" for rank in range(4)}
        assert stratum.exposure == "estimated"
        assert "4 pools" in stratum.exposure_note


def test_without_metrics_nobody_knows_who_was_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "read_counters", silent)
    run = ran(Setup("2x2"))
    assert all(e.met is None for e in run.record.exchanges)
    assert run.code is ExitCode.INCONCLUSIVE
    assert "cannot be seen" in run.claim("ownership").text


async def silent(_client: Client, _url: str, **_: object) -> None:
    """Metrics are off."""


def test_without_metrics_ranks_are_no_single_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's own documents tell that it has four."""
    monkeypatch.setattr(meter, "read_counters", silent)
    run = ran(Setup("dp4"))
    topology = run.record.topology
    assert topology is not None
    assert topology.decode == ("D1.0", "D1.1", "D1.2", "D1.3")
    assert not topology.visible
    assert run.code is ExitCode.INCONCLUSIVE
    assert "cannot be seen" in run.claim("ownership").text
    for stratum in readers(run):
        assert stratum.exposure == "estimated"
        assert "4 pools" in stratum.exposure_note


def test_a_worker_with_one_rank_needs_no_counters() -> None:
    one = Topology(prefill=("P1",), decode=("D1",), visible=False)
    assert [str(p) for p in one.pairs] == ["P1-D1"]
    two = one.model_copy(update={"decode": ("D1", "D2")})
    assert {str(p) for p in two.pairs} == {"P1-D1", "P1-D2"}

"""Exposure against the truth: in the lab's own pools, whatever their policy, and in whole runs."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.deployment.facts import Role
from kvcanary.lab import FreeListPolicy
from kvcanary.lab.pool import Pool
from kvcanary.lab.tokenizer import IntArray
from kvcanary.lab.truth import Witness
from kvcanary.record.meeting import Topology
from kvcanary.record.run import HighWater
from kvcanary.verdict.exposure import Exposure, exposure_of
from tests.builders import exchange, facts, record, worker
from tests.instrument.lab_runs import Setup, ran

PAGE = 4


def stated(pool_tokens: int, water: int, reads: list[int]) -> Exposure:
    run = record(
        facts=facts(worker(Role.PREFILL, 10**6), worker(Role.DECODE, pool_tokens)),
        high_water=HighWater(tokens=water, how="measured"),
    )
    return exposure_of(run, [exchange(n, tokens=tokens) for n, tokens in enumerate(reads, 1)])


@given(
    pages=st.integers(4, 80),
    policy=st.sampled_from(FreeListPolicy),
    earlier=st.lists(st.integers(1, 60), max_size=5),
    victims=st.lists(st.integers(1, 120), min_size=1, max_size=6),
    readers=st.lists(st.integers(1, 200), min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=400)
def test_measured_is_never_above_what_was_read(
    pages: int,
    policy: FreeListPolicy,
    earlier: list[int],
    victims: list[int],
    readers: list[int],
    seed: int,
) -> None:
    """Victims are held together, released in any order; readers come one after the other."""
    chance = random.Random(seed)
    pool = Pool(pages * PAGE, PAGE, policy, Witness(pages * PAGE, PAGE))
    owners = iter(range(1, 1_000))

    def take(tokens: int) -> IntArray | None:
        return pool.allocate(pool.pages_for(tokens), next(owners))

    for tokens in earlier:
        table = take(tokens)
        if table is not None:
            pool.release(table)
    held = [table for tokens in victims if (table := take(tokens)) is not None]
    water = pool.tokens - pool.free_pages * PAGE
    for table in chance.sample(held, len(held)):
        pool.release(table)
    truths: list[tuple[int, int]] = []
    for tokens in readers:
        table = take(tokens)
        if table is None:
            continue
        exposed = int((pool.witness.previous_owners[table] != 0).sum()) * PAGE
        truths.append((tokens, exposed))
        pool.release(table)
    if not truths or not water:
        return
    found = stated(pool.tokens, water, [tokens for tokens, _ in truths])
    assert found.kind == "measured"
    assert found.tokens is not None
    assert found.tokens <= min(exposed for _, exposed in truths)


@pytest.mark.parametrize("policy", list(FreeListPolicy))
def test_a_whole_run_states_no_more_than_its_lab_knows(policy: FreeListPolicy) -> None:
    run = ran(Setup(suite="check", free_list=policy))
    strata = [s for s in run.verdict.strata if s.purpose == "reader"]
    assert {s.exposure for s in strata} == {"measured"}
    assert any(s.exposed_tokens for s in strata)
    for stratum in strata:
        for sent in (e for e in run.record.exchanges if e.group == stratum.name and e.answered):
            truth = run.lab.truth.read(sent.name)
            assert truth
            assert stratum.exposed_tokens is not None
            assert stratum.exposed_tokens <= truth.exposed_pages * truth.page_tokens


def test_the_ranks_of_one_worker_are_pools_apart() -> None:
    ranks = tuple(f"D1.{n}" for n in range(4))
    run = record(
        facts=facts(worker(Role.PREFILL), worker(Role.DECODE, 8_000)),
        topology=Topology(prefill=("P1",), decode=ranks, visible=True),
        high_water=HighWater(tokens=6_000, how="measured"),
    )
    found = exposure_of(run, [exchange(1, tokens=5_000)])
    assert (found.kind, found.tokens) == ("estimated", 1_500)
    assert "4 pools" in found.note

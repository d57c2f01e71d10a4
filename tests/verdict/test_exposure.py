"""Exposure is a lower bound: no allocator may expose less than what is stated as measured."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.deployment.facts import Role
from kvcanary.record.run import HighWater
from kvcanary.verdict.exposure import exposure_of
from tests.builders import exchange, facts, record, sound, worker


def stated(pool: int, water: int, read: int, how: str = "measured") -> int:
    run = record(facts=sound(decode=pool), high_water=HighWater(tokens=water, how=how))
    found = exposure_of(run, [exchange(1, tokens=read)])
    assert found.kind == how
    assert found.tokens is not None
    return found.tokens


@given(
    pool=st.integers(1, 60),
    before=st.lists(st.integers(1, 30), max_size=4),
    together=st.lists(st.integers(1, 30), max_size=5),
    read=st.integers(1, 60),
    policy=st.sampled_from(
        ["lifo", "fifo", "sorted", "reversed", "random", "virgin first", "dirty last"]
    ),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, derandomize=True, max_examples=500)
def test_never_above_the_truth_in_an_allocator_of_any_policy(
    pool: int, before: list[int], together: list[int], read: int, policy: str, seed: int
) -> None:
    chance = random.Random(seed)
    free, dirty = list(range(pool)), set()

    def take(count: int) -> list[int]:
        if policy == "lifo":
            chosen = free[-count:]
        elif policy == "random":
            chosen = chance.sample(free, count)
        else:
            order = {
                "fifo": free,
                "sorted": sorted(free),
                "reversed": sorted(free, reverse=True),
                "virgin first": sorted(free, key=lambda page: page in dirty),
                "dirty last": sorted(free, key=lambda page: (page in dirty, -page)),
            }[policy]
            chosen = order[:count]
        for page in chosen:
            free.remove(page)
        return chosen

    for size in before:  # one after the other
        if size <= len(free):
            held = take(size)
            dirty.update(held)
            free.extend(held)
    held = []
    for size in together:  # held at once, then let go
        if size <= len(free):
            held += take(size)
    dirty.update(held)
    water = len(held)
    chance.shuffle(held)
    free.extend(held)
    if read <= len(free):
        truth = sum(page in dirty for page in take(read))
        if water:
            assert stated(pool, water, read) <= truth


def test_the_shortest_answer_counts_and_only_answers() -> None:
    run = record(facts=sound(decode=100), high_water=HighWater(tokens=90, how="measured"))
    members = [
        exchange(1, tokens=50),
        exchange(2, tokens=30),
        exchange(3, tokens=1, outcome="refused"),
    ]
    assert exposure_of(run, members).tokens == 20
    assert exposure_of(run, members[2:]).kind == "unknown"


def test_unknown_is_never_guessed() -> None:
    unfilled = exposure_of(record(), [exchange(1)])
    assert (unfilled.kind, unfilled.tokens) == ("unknown", None)
    assert "not filled" in unfilled.note


@pytest.mark.parametrize(
    "deployment",
    [
        None,
        facts(),
        facts(worker(Role.DECODE, None)),
        facts(worker(Role.DECODE), worker(Role.DECODE)),
    ],
)
def test_without_one_known_pool_it_is_an_estimate_with_its_assumption(deployment: object) -> None:
    run = record(facts=deployment, high_water=HighWater(tokens=7_000, how="measured"))
    found = exposure_of(run, [exchange(1, tokens=10_000)])
    assert found.kind == "estimated"
    assert found.tokens is not None
    assert 0 < found.tokens <= 7_000
    assert "assumes" in found.note


def test_an_estimated_high_water_is_an_estimated_exposure() -> None:
    assert stated(100, 90, 50, how="estimated") == 40

"""Several workers and DP ranks: who meets whom, and how the counters tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kvcanary.lab import FreeListPolicy, RouteTruth, Routing, Scenario
from kvcanary.lab.routing import policies
from tests.lab.talk import BELOW, IN_WINDOW, WORDS, Paper, Talk, plain, sized, talking

GRID, ONE_SHORT, RANKS = sized("2x2"), sized("2x2-one-short"), sized("dp4")


def route(talk: Talk, name: str) -> RouteTruth:
    met = talk.lab.truth.route(name)
    assert met is not None
    return met


def pair(talk: Talk, name: str) -> str:
    met = route(talk, name)
    return f"{met.prefill}-{met.decode}"


async def samples(talk: Talk, worker: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    url = next(w.url for w in talk.lab.workers if w.name == worker)
    text = (await talk.client.get(url + "/metrics")).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def total(talk: Talk, worker: str, name: str, **labels: str) -> float:
    found = await samples(talk, worker)
    return sum(v for (n, had), v in found.items() if n == name and labels.items() <= set(had))


async def pairs(talk: Talk, count: int, text: str | None = None) -> list[str]:
    for number in range(count):
        assert (
            await talk.complete(f"r{number}", text or plain(70, number), max_tokens=2)
        ).status == 200
    return [pair(talk, f"r{number}") for number in range(count)]


def routed(routing: Routing) -> Scenario:
    return replace(GRID, routing=routing)


def test_round_robin_meets_all_four_pairs() -> None:
    async def scene(talk: Talk) -> None:
        assert await pairs(talk, 5) == ["P1-D1", "P2-D1", "P1-D2", "P2-D2", "P1-D1"]
        assert [worker.name for worker in talk.lab.workers] == ["P1", "P2", "D1", "D2"]

    talking(GRID, scene)


def test_in_lockstep_half_of_the_pairs_never_meet() -> None:
    async def scene(talk: Talk) -> None:
        assert Counter(await pairs(talk, 8)) == {"P1-D1": 4, "P2-D2": 4}

    talking(routed(Routing.LOCKSTEP), scene)


def test_least_load_never_moves_on_while_requests_come_one_by_one() -> None:
    async def scene(talk: Talk) -> None:
        assert set(await pairs(talk, 4)) == {"P1-D1"}
        first = talk.lab.deployment
        assert [worker.open_requests for worker in first.workers] == [0, 0, 0, 0]

    talking(routed(Routing.LEAST_LOAD), scene)


def test_the_same_first_page_goes_to_the_same_worker() -> None:
    async def scene(talk: Talk) -> None:
        assert len(set(await pairs(talk, 4, plain(200, 1)))) == 1
        assert len(set(await pairs(talk, 4))) == 2

    talking(routed(Routing.CACHE_AWARE), scene)


def test_random_routes_repeat_with_the_seed() -> None:
    def met(seed: int) -> list[str]:
        async def scene(talk: Talk) -> list[str]:
            return await pairs(talk, 20)

        return talking(routed(Routing.RANDOM), scene, seed=seed)

    assert met(1) == met(1) != met(2)
    assert len(set(met(1))) == 4


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.sampled_from(list(Routing)),
    st.integers(1, 4),
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.binary(max_size=2))),
)
def test_a_policy_names_a_worker_that_there_is(
    routing: Routing, workers: int, requests: list[tuple[list[int], bytes]]
) -> None:
    for policy in policies(routing, workers, seed=3):
        for loads, page in requests:
            chosen = policy.choose(loads[:workers], page)
            assert 0 <= chosen < workers
            if routing is Routing.LEAST_LOAD:
                assert loads[chosen] == min(loads[:workers])


def test_counter_deltas_tell_which_workers_a_request_met() -> None:
    async def scene(talk: Talk) -> None:
        names = [worker.name for worker in talk.lab.workers]
        for number in range(4):
            before = {name: await total(talk, name, "sglang:num_requests_total") for name in names}
            await talk.complete(f"r{number}", plain(70, number))
            after = {name: await total(talk, name, "sglang:num_requests_total") for name in names}
            assert "-".join(n for n in names if after[n] > before[n]) == pair(talk, f"r{number}")
        starts = {await total(talk, name, "process_start_time_seconds") for name in names}
        assert len(starts) == 4

    talking(GRID, scene)


def test_only_requests_that_meet_the_short_worker_leak() -> None:
    async def scene(talk: Talk) -> None:
        for number in range(8):
            paper = Paper(WORDS[number], BELOW, number)
            await talk.complete(paper.name, paper.text("middle"))
        for number in range(8):
            paper = Paper(WORDS[50 + number], IN_WINDOW, 50 + number)
            answer = await talk.complete(paper.name, paper.text("opening"))
            truth = talk.lab.truth.read(paper.name)
            assert truth is not None
            assert answer.status == 200
            assert (truth.prefill, truth.decode) == tuple(pair(talk, paper.name).split("-"))
            if truth.prefill == "P2":
                assert truth.foreign_pages > 25
                assert truth.own_pages <= 1  # the placeholder's
            else:
                assert truth.own_pages == len(truth.pages)
                assert answer.text.split()[0] == paper.code("opening")

    talking(ONE_SHORT, scene)


def test_each_worker_has_pages_of_its_own() -> None:
    async def scene(talk: Talk) -> None:
        first = await talk.complete("a", plain(BELOW))
        other = await talk.complete("b", plain(BELOW))
        again = await talk.complete("c", plain(BELOW))
        assert [answer.cached_tokens for answer in (first, other)] == [0, 0]
        assert again.cached_tokens > 0
        used = [int((rank.pool.ids != 0).sum()) for rank in talk.lab.deployment.ranks]
        assert all(tokens >= BELOW for tokens in used)

    talking(GRID, scene)


async def told(talk: Talk, worker: str, path: str) -> Any:
    url = next(w.url for w in talk.lab.workers if w.name == worker)
    return (await talk.client.get(url + path)).json()


def test_the_server_info_of_a_worker_with_ranks_shows_rank_0_on_top() -> None:
    async def scene(talk: Talk) -> None:
        info = await told(talk, "D1", "/server_info")
        assert (info["dp_size"], info["max_total_num_tokens"]) == (4, 7936)
        capacities = [s["memory_usage"]["token_capacity"] for s in info["internal_states"]]
        assert capacities == [7936, 7936, 2560, 7936]
        loads = (await told(talk, "D1", "/v1/loads"))["loads"]
        assert [load["dp_rank"] for load in loads] == [0, 1, 2, 3]
        assert [load["max_total_num_tokens"] for load in loads] == capacities
        name = "sglang:max_total_num_tokens"
        by_rank = [await total(talk, "D1", name, dp_rank=str(rank)) for rank in range(4)]
        assert by_rank == capacities
        assert not any("dp_rank" in dict(had) for _, had in await samples(talk, "P1"))
        router = (await talk.client.get(talk.lab.url + "/workers")).json()
        assert [worker["metadata"]["dp_size"] for worker in router["workers"]] == ["1", "4"]

    uneven = replace(RANKS.decode, more_ranks=(7936, 2560, 7936))
    talking(replace(RANKS, decode=uneven), scene)


def test_ranks_take_turns_and_can_be_asked_for() -> None:
    async def scene(talk: Talk) -> None:
        for number in range(5):
            await talk.complete(f"r{number}", plain(70, number))
        assert [route(talk, f"r{n}").decode_rank for n in range(5)] == [0, 1, 2, 3, 0]
        for rank in (3, 0, 2):
            await talk.complete("field", plain(70, rank), routed_dp_rank=rank)
            assert route(talk, "field").decode_rank == rank
            await talk.client.post(
                talk.lab.url + "/v1/completions",
                json={"prompt": plain(70), "max_tokens": 2},
                headers={"X-data-parallel-rank": str(rank), "X-Request-Id": "header"},
            )
            read = talk.lab.truth.read("header")
            assert read is not None
            assert (read.decode_rank, read.prefill_rank) == (rank, 0)

    talking(RANKS, scene)


def test_each_rank_counts_its_own_tokens() -> None:
    async def scene(talk: Talk) -> None:
        for rank, tokens in enumerate((3, 5, 7, 9)):
            await talk.complete("r", plain(70), routed_dp_rank=rank, max_tokens=tokens)
        name = "sglang:realtime_tokens_total"
        counted = [await total(talk, "D1", name, dp_rank=str(rank)) for rank in range(4)]
        assert counted == [3, 5, 7, 9]
        assert await total(talk, "D1", "sglang:generation_tokens_total") == 24

    talking(RANKS, scene)


@pytest.mark.parametrize("rank", ["4", "-1", "x", ""])
def test_a_rank_that_there_is_not_is_refused(rank: str) -> None:
    async def scene(talk: Talk) -> None:
        response = await talk.client.post(
            talk.lab.url + "/v1/completions",
            json={"prompt": "a few words"},
            headers={"X-data-parallel-rank": rank},
        )
        assert response.status_code == 400
        assert "out of range" in response.json()["error"]["message"]
        if rank.lstrip("-").isdecimal():
            assert (await talk.complete("r", "a b", routed_dp_rank=int(rank))).status == 400

    talking(RANKS, scene)


@pytest.mark.parametrize("policy", list(FreeListPolicy))
def test_the_free_list_decides_what_a_reader_finds(policy: FreeListPolicy) -> None:
    async def scene(talk: Talk) -> None:
        for number in range(2):
            await talk.complete(f"victim{number}", plain(1280, number))
        await talk.complete("reader", plain(IN_WINDOW, 9))
        truth = talk.lab.truth.read("reader")
        assert truth is not None
        writers = [page.writer for page in truth.pages[1:]]  # the first holds the placeholder
        found = {name: writers.count(name) for name in ("victim0", "victim1", None)}
        # of 124 pages, two victims used 21 each: lifo gives the same ones again and again
        expected = {
            FreeListPolicy.LIFO: {"victim0": 0, "victim1": 20, None: 34},
            FreeListPolicy.FIFO: {"victim0": 0, "victim1": 0, None: 54},
            FreeListPolicy.SORTED: {"victim0": 0, "victim1": 0, None: 54},
        }
        assert found == expected[policy]

    talking(sized("glm-5.3").with_free_list(policy), scene)


def test_with_free_list_changes_all_workers_and_nothing_else() -> None:
    changed = ONE_SHORT.with_free_list(FreeListPolicy.FIFO)
    shapes = (*changed.prefill_shapes, *changed.decode_shapes)
    assert {shape.free_list for shape in shapes} == {FreeListPolicy.FIFO}
    assert changed.with_free_list(FreeListPolicy.LIFO) == ONE_SHORT

"""What SGLang says of itself, from captures of 0.5.23, and what it might say."""

from typing import Any

import pytest

from kvcanary.deployment.facts import Parallelism, Role, SwitchName, Worker
from kvcanary.engines import catalogue, sglang
from kvcanary.engines.documents import Documents
from tests.engines import captures
from tests.engines.captures import answer, documents, page

GAUGE = 'sglang:max_total_num_tokens{{engine_type="{role}",tp_rank="0",dp_rank="{rank}"}} {value}\n'


def worker(given: Documents, role: Role | None = None) -> Worker:
    assert catalogue.engine_of(given) is sglang.ENGINE
    return sglang.ENGINE.worker("http://w", given, role)


def info(**fields: object) -> Documents:
    return documents(server_info=fields)


def test_the_captured_server_tells_everything() -> None:
    found = worker(captures.sglang())
    assert (found.role, found.engine, found.version) == (Role.UNIFIED, "sglang", "0.5.23")
    assert (found.pool_tokens, found.context_tokens, found.page_tokens) == (700, 2_048, 1)
    assert (found.limit_tokens, found.used_tokens, found.model) == (693, 0, "tiny")
    assert found.parallelism == Parallelism(tensor=1, pipeline=1, data=1)
    assert [(r.rank, r.pool_tokens, r.used_tokens) for r in found.ranks] == [(0, 700, 0)]
    assert found.memory_fraction == 0.1
    assert found.bytes_per_token == pytest.approx(512, rel=1e-6)
    assert found.host_pool_tokens is None
    assert found.untold == ()


def test_every_figure_says_where_it_comes_from() -> None:
    found = worker(captures.sglang())
    for figure in ("pool_tokens", "limit_tokens", "context_tokens", "page_tokens", "used_tokens"):
        assert figure in {told.figure for told in found.told}
    assert found.told_by("context_tokens") == "/server_info context_length"
    assert found.told_by("pool_tokens") == "/server_info max_total_num_tokens"


def test_metrics_alone_tell_capacity_where_the_key_is_missing() -> None:
    """``--api-key`` guards ``/server_info`` and leaves ``/metrics`` open."""
    found = worker(documents(captures.captured_page("sglang-0.5.23.prom")))
    assert (found.pool_tokens, found.context_tokens, found.page_tokens) == (700, 2_048, 1)
    assert found.limit_tokens == 693, "by the rule of every version"
    assert found.used_tokens == 0
    assert found.told_by("pool_tokens")


def test_the_limit_is_the_longest_prompt_that_the_captured_server_took() -> None:
    took = {
        int(case["name"].removeprefix("comp_")): case["status"]
        for case in answer("sglang-0.5.23-probe.json")
        if case["name"].removeprefix("comp_").isdigit()
    }
    found = worker(captures.sglang())
    assert found.limit_tokens == max(length for length, status in took.items() if status == 200)
    assert took[found.limit_tokens + 1] == 400


@pytest.mark.parametrize(
    ("mode", "role"),
    [
        ("prefill", Role.PREFILL),
        ("decode", Role.DECODE),
        ("null", Role.UNIFIED),
        (None, Role.UNIFIED),
        (7, Role.UNIFIED),
        ({"a": 1}, Role.UNIFIED),
    ],
)
def test_the_role_is_its_own_word_unless_the_router_said_it(mode: Any, role: Role) -> None:
    given = info(max_total_num_tokens=700, disaggregation_mode=mode)
    assert worker(given).role is role
    assert worker(given, Role.DECODE).role is Role.DECODE


@pytest.mark.parametrize("role", list(Role))
def test_the_role_stands_in_the_metrics(role: Role) -> None:
    assert worker(documents(GAUGE.format(role=role, rank=0, value=9_000))).role is role


# DP ranks


def test_the_smallest_rank_counts() -> None:
    states = [{"memory_usage": {"token_capacity": n}} for n in (900, 650, 800)]
    found = worker(info(max_total_num_tokens=900, internal_states=states, dp_size=3))
    assert found.pool_tokens == 650
    assert [rank.pool_tokens for rank in found.ranks] == [900, 650, 800]
    assert found.limit_tokens is None
    by = "/server_info internal_states token_capacity, the smallest of 3 DP ranks"
    assert found.told_by("pool_tokens") == by


def test_ranks_that_nobody_tells_are_unknown_and_never_capacity() -> None:
    """``max_total_num_tokens`` is rank 0's only."""
    found = worker(info(max_total_num_tokens=900, dp_size=4))
    assert [rank.pool_tokens for rank in found.ranks] == [900, None, None, None]
    assert found.pool_tokens is None
    assert found.pools == 4
    (missing,) = [u for u in found.untold if u.figure == "pool_tokens"]
    assert "3 of 4 DP ranks" in missing.remedy


@pytest.mark.parametrize("source", ["loads", "metrics", "states"])
def test_ranks_are_told_by_loads_metrics_and_states(source: str) -> None:
    pools = (900, 650)
    given: dict[str, object] = {"server_info": {"max_total_num_tokens": 900, "dp_size": 2}}
    text = None
    if source == "loads":
        loads = [
            {"dp_rank": r, "max_total_num_tokens": p, "num_used_tokens": 7 + r}
            for r, p in enumerate(pools)
        ]
        given["loads"] = {"loads": loads}
    elif source == "metrics":
        text = "".join(GAUGE.format(role="decode", rank=r, value=p) for r, p in enumerate(pools))
        text += 'sglang:kv_used_tokens{dp_rank="0"} 7\nsglang:kv_used_tokens{dp_rank="1"} 8\n'
    else:
        given["server_info"] |= {  # type: ignore[operator]
            "internal_states": [{"memory_usage": {"token_capacity": p}} for p in pools]
        }
    found = worker(documents(text, **given))
    assert found.pool_tokens == 650
    assert found.used_tokens == (None if source == "states" else 15)


def test_of_a_rank_s_schedulers_the_smallest_pool_counts() -> None:
    text = "".join(
        f'sglang:max_total_num_tokens{{tp_rank="{tp}",dp_rank="0"}} {pool}\n'
        for tp, pool in enumerate((900, 880, 900))
    )
    assert worker(documents(text)).pool_tokens == 880


def test_the_limit_is_that_of_the_smallest_rank() -> None:
    states = [{"memory_usage": {"token_capacity": n}} for n in (5_000, 650)]
    found = worker(
        info(
            max_total_num_tokens=5_000,
            max_req_input_len=2_042,
            context_length=2_048,
            internal_states=states,
            dp_size=2,
        )
    )
    assert found.limit_tokens == 643


def test_more_states_than_ranks_are_not_ranks() -> None:
    """A list that does not fit the number of ranks says nothing of which is which."""
    states = [{"memory_usage": {"token_capacity": 10}}] * 5
    assert (
        worker(info(max_total_num_tokens=900, internal_states=states, dp_size=1)).pool_tokens == 900
    )


def test_absurd_numbers_of_ranks_are_not_believed() -> None:
    assert len(worker(info(max_total_num_tokens=900, dp_size=10**12)).ranks) == 1
    loads = {"loads": [{"dp_rank": 10**9, "max_total_num_tokens": 5}]}
    assert len(worker(documents(server_info={"max_total_num_tokens": 900}, loads=loads)).ranks) == 1


def test_the_pool_follows_from_the_limit_where_the_pool_is_the_smaller() -> None:
    smaller = worker(info(max_req_input_len=694, context_length=2_048))
    assert smaller.pool_tokens == 700
    larger = worker(info(max_req_input_len=2_042, context_length=2_048))
    assert larger.pool_tokens is None, "it holds the context, and how much more is unknown"
    assert larger.limit_tokens == 2_041


# older names


def test_an_old_server_is_asked_for_its_old_names() -> None:
    """0.5.2: no ``/server_info``, no ``/v1/loads``."""
    old = documents(get_server_info=answer("sglang-0.5.23-server_info.json"))
    assert worker(old).pool_tokens == 700
    asked = {"/v1/models", "/server_info", "/get_server_info", "/metrics"}
    asked |= {want.path for want in sglang.ENGINE.wants}
    assert [want.path for want in catalogue.wanted(old, asked)] == ["/get_load"]


def test_old_loads_tell_use_only_when_nothing_waits() -> None:
    """``num_tokens`` counts what waits in."""

    def used(waiting: int) -> int | None:
        load = [{"dp_rank": 0, "num_reqs": 1, "num_waiting_reqs": waiting, "num_tokens": 120}]
        return worker(
            documents(server_info={"max_total_num_tokens": 900}, get_load=load)
        ).used_tokens

    assert (used(0), used(1)) == (120, None)


def test_old_metrics_have_the_pool_in_labels() -> None:
    text = (
        'sglang:cache_config_info{num_pages="100",page_size="64"} 1\n'
        'sglang:max_total_num_tokens{tp_rank="0"} 6400\nsglang:context_len 2048\n'
    )
    found = worker(documents(text))
    assert (found.pool_tokens, found.page_tokens) == (6_400, 64)


# sliding windows, host memory


def test_a_pool_for_sliding_windows_is_told_apart() -> None:
    states = [{"memory_usage": {"token_capacity": 900, "token_capacity_swa": 300, "kvcache": 2.0}}]
    found = worker(info(max_total_num_tokens=900, internal_states=states))
    assert found.pool_tokens == 900
    assert found.ranks[0].sliding_pool_tokens == 300
    assert found.bytes_per_token is None, "the memory of the two is not told apart"


def test_host_memory_is_no_pool() -> None:
    fields: dict[str, object] = {
        "max_total_num_tokens": 900,
        "hicache_ratio": 2.0,
        "hicache_size": 0,
    }
    found = worker(info(**fields, enable_hierarchical_cache=True))
    assert (found.pool_tokens, found.host_pool_tokens) == (900, 1_800)
    assert worker(info(**fields, enable_hierarchical_cache=False)).host_pool_tokens is None
    sized = fields | {"hicache_size": 40}
    assert worker(info(**sized, enable_hierarchical_cache=True)).host_pool_tokens is None


# safety switches


@pytest.mark.parametrize(
    ("field", "value", "name", "on"),
    [
        ("disaggregation_enable_kv_checksum", True, SwitchName.KV_CHECKSUM, True),
        ("disaggregation_enable_kv_checksum", False, SwitchName.KV_CHECKSUM, False),
        ("disaggregation_enable_kv_checksum", "yes", SwitchName.KV_CHECKSUM, None),
        ("x", None, SwitchName.KV_CHECKSUM, None),
        ("allow_auto_truncate", True, SwitchName.NO_AUTO_TRUNCATE, False),
        ("allow_auto_truncate", False, SwitchName.NO_AUTO_TRUNCATE, True),
        ("x", None, SwitchName.NO_AUTO_TRUNCATE, None),
        ("disable_radix_cache", True, SwitchName.CACHE_SALT, True),
        ("disable_radix_cache", False, SwitchName.CACHE_SALT, None),
        ("x", None, SwitchName.DEFERRED_RELEASE, None),
        ("x", None, SwitchName.POOL_CHECK, False),
    ],
)
def test_switches(field: str, value: object, name: SwitchName, on: bool | None) -> None:
    found = worker(info(**{"max_total_num_tokens": 900, field: value}))
    assert [switch.on for switch in found.switches if switch.name is name] == [on]


def test_the_captured_server_s_switches() -> None:
    on = {switch.name: switch.on for switch in worker(captures.sglang()).switches}
    assert on[SwitchName.KV_CHECKSUM] is False
    assert on[SwitchName.NO_AUTO_TRUNCATE] is True


def test_a_page_of_another_engine_is_none_of_its() -> None:
    assert not sglang.ENGINE.speaks(documents(page("vllm:num_requests_running 1\n")))
    assert not sglang.ENGINE.speaks(info(router_manager=True))

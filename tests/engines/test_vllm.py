"""What vLLM says of itself, from captures of 0.32.0, and what older versions say."""

from typing import Any

import pytest

from kvcanary.deployment.facts import Role, SwitchName, Worker
from kvcanary.engines import catalogue, vllm
from kvcanary.engines.documents import Documents
from tests.engines import captures
from tests.engines.captures import answer, captured_page, documents

MODELS = {
    "data": [{"id": "tiny", "max_model_len": 4_096}, {"id": "adapter", "max_model_len": None}]
}


def worker(given: Documents, role: Role | None = None) -> Worker:
    assert catalogue.engine_of(given) is vllm.ENGINE
    return vllm.ENGINE.worker("http://w", given, role)


def config(engine: int | None = 0, **labels: object) -> str:
    """One row of ``cache_config_info``."""
    shown = {"block_size": 16, "num_gpu_blocks": 1_000, **labels}
    if engine is not None:
        shown["engine"] = engine
    inner = ",".join(f'{label}="{value}"' for label, value in shown.items())
    return f"vllm:cache_config_info{{{inner}}} 1.0\n"


def test_the_captured_server_tells_everything() -> None:
    found = worker(captures.vllm())
    assert (found.engine, found.version, found.model) == ("vllm", "0.32.0", "tiny")
    assert found.role is Role.UNIFIED
    assert found.pool_tokens == 608, "20 blocks of 32, less the null block"
    assert (found.context_tokens, found.limit_tokens, found.page_tokens) == (608, 607, 32)
    assert found.used_tokens == 0
    assert found.memory_fraction == 0.92
    assert found.started_at == pytest.approx(1_796_053_255.47)
    assert found.bytes_per_token is None, "the number of blocks was overridden"
    assert found.untold == ()


def test_the_limit_is_the_longest_prompt_that_the_captured_server_took() -> None:
    """``prompt_eq_ctx``: a prompt of 608 tokens was refused for want of one token of output."""
    assert worker(captures.vllm()).limit_tokens == 607


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_the_role_is_the_router_s_word(role: Role) -> None:
    assert worker(captures.vllm(), role).role is role


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("kv_producer", Role.PREFILL),
        ("kv_consumer", Role.DECODE),
        ("kv_both", Role.UNIFIED),
        ([], Role.UNIFIED),
    ],
)
def test_the_developers_mode_tells_the_role(said: object, role: Role) -> None:
    developer = {"vllm_config": {"kv_transfer_config": {"kv_role": said}}}
    assert worker(documents(config(), developer=developer)).role is role


def test_the_developers_mode_of_the_captured_server() -> None:
    given = documents(
        captured_page("vllm-0.32.0.prom"), developer=answer("vllm-0.32.0-server_info.json")
    )
    found = worker(given)
    assert found.context_tokens == 608
    assert (found.parallelism.tensor, found.parallelism.pipeline, found.parallelism.data) == (
        1,
        1,
        1,
    )


# DP engines


def test_the_smallest_engine_counts_and_blocks_are_not_summed() -> None:
    """Two engines of 20 blocks both read ``num_gpu_blocks="40"``."""
    rows = [config(n, num_gpu_blocks=40, kv_cache_size_tokens=t) for n, t in enumerate((640, 320))]
    found = worker(documents("".join(rows), v1_models=MODELS))
    assert [(r.rank, r.pool_tokens) for r in found.ranks] == [(0, 624), (1, 304)]
    assert found.pool_tokens == 304
    assert found.pools == 2


def test_an_engine_that_is_not_shown_is_unknown() -> None:
    developer = {"vllm_config": {"parallel_config": {"data_parallel_size": 3}}}
    found = worker(documents(config(1, kv_cache_size_tokens=640), developer=developer))
    assert [(r.rank, r.pool_tokens) for r in found.ranks] == [(0, None), (1, 624), (2, None)]
    assert found.pool_tokens is None


def test_behind_a_balancer_of_its_own_an_engine_shows_itself_only() -> None:
    parallel = {"data_parallel_size": 3, "data_parallel_external_lb": True}
    developer = {"vllm_config": {"parallel_config": parallel}}
    found = worker(documents(config(1, kv_cache_size_tokens=640), developer=developer))
    assert found.pool_tokens == 624


def test_use_is_a_share_of_each_engine_s_pool() -> None:
    rows = config(0, kv_cache_size_tokens=1_616) + config(1, kv_cache_size_tokens=3_216)
    use = 'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.25\n'
    assert worker(documents(rows + use)).used_tokens == 800 + 800
    assert worker(documents(rows + use.partition("\n")[0])).used_tokens is None
    wild = use.replace("0.25", "7")
    assert worker(documents(rows + wild)).used_tokens is None


# older versions


def old(running: str | None, *, developer: object = None, **labels: Any) -> int | None:
    given = documents(
        config(**labels), v1_models=MODELS, version={"version": running}, developer=developer
    )
    return worker(given).pool_tokens


def test_older_versions_are_counted_in_blocks_where_that_is_valid() -> None:
    assert old("0.8.5") == 999 * 16
    assert old("0.8.5.post1") == 999 * 16
    one_kind = {"vllm_config": {"scheduler_config": {"disable_hybrid_kv_cache_manager": True}}}
    assert old("0.11.0", developer=one_kind) == 999 * 16
    two = config(0, num_gpu_blocks=1_000) + config(1, num_gpu_blocks=1_000)
    given = documents(two, version={"version": "0.8.5"})
    assert worker(given).pool_tokens == 499 * 16, "the sum of two engines"


@pytest.mark.parametrize("running", ["0.11.0", "0.24.0", "1.0.0", None, "nonsense"])
def test_where_layers_may_be_of_several_kinds_blocks_say_nothing(running: str | None) -> None:
    assert old(running) is None


@pytest.mark.parametrize(
    "labels", [{"sliding_window": 4_096}, {"mamba_block_size": 512}], ids=["sliding", "mamba"]
)
def test_a_model_that_is_said_to_be_hybrid_is_unknown(labels: dict[str, object]) -> None:
    assert old("0.8.5", **labels) is None


def test_context_parallelism_multiplies_the_block() -> None:
    parallel = {"decode_context_parallel_size": 2, "prefill_context_parallel_size": 1}
    one_kind = {
        "scheduler_config": {"disable_hybrid_kv_cache_manager": True},
        "parallel_config": parallel,
    }
    assert old("0.11.0", developer={"vllm_config": one_kind}) == 999 * 32


@pytest.mark.parametrize("name", ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"])
def test_use_has_two_names(name: str) -> None:
    text = config(0, kv_cache_size_tokens=1_616) + f'{name}{{engine="0"}} 0.5\n'
    assert worker(documents(text)).used_tokens == 800


def test_a_version_without_an_engine_label_has_one_engine() -> None:
    assert worker(documents(config(None, kv_cache_size_tokens=1_616))).pool_tokens == 1_600


# the rest


def test_memory_per_token_where_memory_was_given_and_blocks_were_not() -> None:
    labels: dict[str, Any] = {"kv_cache_memory_bytes": 1_600_000, "kv_cache_size_tokens": 1_600}
    given = config(num_gpu_blocks_override="None", **labels)
    assert worker(documents(given)).bytes_per_token == 1_000
    assert worker(documents(config(num_gpu_blocks_override=100, **labels))).bytes_per_token is None


def test_switches() -> None:
    on = {switch.name: switch.on for switch in worker(captures.vllm()).switches}
    assert on[SwitchName.POOL_CHECK] is True
    assert on[SwitchName.NO_AUTO_TRUNCATE] is True
    assert on[SwitchName.CACHE_SALT] is None
    assert on[SwitchName.KV_CHECKSUM] is None
    uncached = worker(documents(config(enable_prefix_caching="False")))
    assert {s.name: s.on for s in uncached.switches}[SwitchName.CACHE_SALT] is True


def test_without_models_the_context_is_unknown_and_says_how_to_know() -> None:
    found = worker(documents(config(kv_cache_size_tokens=1_616)))
    assert (found.context_tokens, found.limit_tokens) == (None, None)
    assert [u.figure for u in found.untold] == ["context_tokens"]

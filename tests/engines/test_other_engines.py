"""TensorRT-LLM, LMDeploy, TGI, Ollama, Triton and NIM: as far as their documents go."""

import json

import pytest

from kvcanary.deployment.facts import SwitchName, Worker
from kvcanary.engines import catalogue, lmdeploy, nim, ollama, tgi, triton, trtllm
from kvcanary.engines.documents import Documents
from kvcanary.engines.engine import Engine
from tests.engines.captures import answer, captured_page, documents, page


def worker(given: Documents, engine: Engine) -> Worker:
    assert catalogue.engine_of(given) is engine
    return engine.worker("http://w", given)


def untold(found: Worker) -> set[str]:
    return {unknown.figure for unknown in found.untold}


# TensorRT-LLM

TRTLLM = """
trtllm_kv_cache_max_blocks{model_name="m"} 101256
trtllm_kv_cache_used_blocks{model_name="m"} 3
trtllm_kv_cache_tokens_per_block{model_name="m"} 32
"""


@pytest.mark.parametrize("path", ["/prometheus/metrics", "/metrics"])
def test_trtllm_tells_blocks(path: str) -> None:
    """On ``/metrics`` they are a Dynamo worker's, which passes them on."""
    found = worker(Documents({}, {path: page(TRTLLM)}), trtllm.ENGINE)
    assert (found.pool_tokens, found.page_tokens, found.used_tokens) == (101_256 * 32, 32, 96)
    assert {"context_tokens", "limit_tokens"} <= untold(found)


def test_trtllm_without_metrics_is_known_by_its_models_and_tells_nothing() -> None:
    found = worker(
        documents(v1_models={"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}), trtllm.ENGINE
    )
    assert found.pool_tokens is None
    assert "pool_tokens" in untold(found)


def test_trtllm_s_queue_is_never_drained() -> None:
    """Whoever reads its ``/metrics`` takes the statistics away from the next reader."""
    given = documents(v1_models={"data": [{"id": "m", "owned_by": "tensorrt_llm"}]})
    asked = {"/v1/models"}
    while wants := catalogue.wanted(given, asked):
        asked |= {want.path for want in wants}
    assert "/metrics" not in asked
    assert "/prometheus/metrics" in asked


# LMDeploy


def lmdeploy_server(**info: object) -> Documents:
    told = {"tp_size": 2, "dp_size": 1, "pp_size": None, "dp_rank": 0, "block_size": 64}
    return documents(
        'lmdeploy:gpu_cache_usage_perc{engine="0",model_name="m"} 0.25\n',
        engine_info=json.dumps(told | {"num_gpu_blocks": 100} | info),
        v1_models={"data": [{"id": "m", "owned_by": "lmdeploy"}]},
    )


def test_lmdeploy_tells_blocks_in_json_inside_json() -> None:
    found = worker(lmdeploy_server(), lmdeploy.ENGINE)
    assert (found.pool_tokens, found.page_tokens, found.used_tokens) == (6_400, 64, 1_600)
    assert found.parallelism.tensor == 2


def test_lmdeploy_tells_one_of_several_ranks() -> None:
    found = worker(lmdeploy_server(dp_size=4, dp_rank=2), lmdeploy.ENGINE)
    assert found.pool_tokens is None
    assert [(rank.rank, rank.pool_tokens) for rank in found.ranks] == [(2, 6_400)]
    assert found.pools == 4


@pytest.mark.parametrize("info", [None, "", "{", "[]", "[" * 10_000, 7])
def test_lmdeploy_without_an_engine_info(info: object) -> None:
    """TurboMind has none."""
    given = documents('lmdeploy:num_requests_running{engine="0"} 0\n', engine_info=info)
    assert worker(given, lmdeploy.ENGINE).pool_tokens is None


# TGI


def test_tgi_tells_limits_and_on_metrics_its_budget() -> None:
    info = answer("tgi-3.2.1-info.json")
    found = worker(documents("tgi_batch_max_total_tokens 145264\n", info=info), tgi.ENGINE)
    assert (found.version, found.pool_tokens) == ("3.2.1", 145_264)
    assert (found.limit_tokens, found.context_tokens) == (32_767, 32_768)
    assert "pool_tokens" in untold(worker(documents(info=info), tgi.ENGINE))


def test_old_tgi_has_other_names() -> None:
    info = {"max_input_length": 1_000, "max_total_tokens": 2_000, "max_batch_total_tokens": 9_000}
    found = worker(documents(info=info | {"version": "1.4.0"}), tgi.ENGINE)
    assert (found.limit_tokens, found.pool_tokens) == (1_000, 9_000)


# Ollama


def loaded(*contexts: object) -> Documents:
    models = [
        {"name": f"m{n}:latest", "digest": "d", "context_length": c} for n, c in enumerate(contexts)
    ]
    return documents(api_ps={"models": models}, api_version={"version": "0.12.3"})


def test_ollama_tells_the_context_of_what_is_loaded() -> None:
    found = worker(loaded(8_192), ollama.ENGINE)
    assert (found.context_tokens, found.version, found.model) == (8_192, "0.12.3", "m0:latest")
    assert found.pool_tokens is None
    assert worker(loaded(8_192, 4_096), ollama.ENGINE).context_tokens == 4_096
    assert worker(loaded(8_192, None), ollama.ENGINE).context_tokens is None


def test_ollama_with_nothing_loaded_says_how_to_know() -> None:
    found = worker(loaded(), ollama.ENGINE)
    assert found.context_tokens is None
    assert "context_tokens" in untold(found)


def test_ollama_cuts_without_a_word() -> None:
    (switch,) = worker(loaded(8_192), ollama.ENGINE).switches
    assert (switch.name, switch.on) == (SwitchName.NO_AUTO_TRUNCATE, False)


# Triton, NIM


def test_triton_tells_blocks() -> None:
    found = worker(documents(captured_page("triton.prom")), triton.ENGINE)
    assert (found.pool_tokens, found.page_tokens, found.used_tokens) == (6_239 * 64, 64, 64)


def test_triton_with_two_models_has_the_smaller_pool() -> None:
    text = "".join(
        f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="{model}"}} {value}\n'
        for model, blocks in (("a", 100), ("b", 50))
        for kind, value in (("max", blocks), ("tokens_per", 64), ("used", 1))
    )
    found = worker(documents(text), triton.ENGINE)
    assert (found.pool_tokens, found.used_tokens) == (3_200, None)


@pytest.mark.parametrize("path", ["/metrics", "/v1/metrics"])
def test_nim_tells_a_share_and_no_size(path: str) -> None:
    models = {"/v1/models": {"data": [{"id": "m", "max_model_len": 4_096}]}}
    found = worker(Documents(models, {path: page("gpu_cache_usage_perc 0.5\n")}), nim.ENGINE)
    assert (found.pool_tokens, found.context_tokens) == (None, 4_096)
    assert "pool_tokens" in untold(found)

"""What the workers and the router tell about themselves."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.lab.talk import BELOW, IN_WINDOW, TOKENIZER, Talk, plain, sized, talking

SICK = sized("glm-5.3")


async def told(talk: Talk, role: str, path: str) -> Any:
    response = await talk.client.get(dict(talk.lab.worker_urls)[role] + path)
    assert response.status_code == 200
    return response.json()


async def metrics(talk: Talk, role: str) -> dict[str, float]:
    """Sums over label sets by sample name."""
    response = await talk.client.get(dict(talk.lab.worker_urls)[role] + "/metrics")
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            if family.name.startswith("sglang:"):
                assert sample.labels["engine_type"] == role
                assert sample.labels["model_name"] == "glm-5.3-lab"
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def test_the_dangerous_window_can_be_computed_before_any_traffic() -> None:
    async def scene(talk: Talk) -> None:
        limits = {}
        for role, pool in (("prefill", 2624), ("decode", 7936)):
            for path in ("/server_info", "/get_server_info"):
                info = await told(talk, role, path)
                assert info["disaggregation_mode"] == role
                assert info["context_length"] == 4096
                assert info["page_size"] == 64
                assert info["max_total_num_tokens"] == pool
                assert info["internal_states"][0]["memory_usage"]["token_capacity"] == pool
                assert info["api_key"] is None
                limits[role] = info["max_req_input_len"]
            gauges = await metrics(talk, role)
            assert gauges["sglang:max_total_num_tokens"] == pool
            assert gauges["sglang:context_len"] == 4096
            assert gauges["sglang:page_size"] == 64
        assert limits == {"prefill": 2618, "decode": 4090}

    talking(SICK, scene)


def test_the_metrics_count_one_prefill_token_for_the_placeholder() -> None:
    async def scene(talk: Talk) -> None:
        await talk.complete("v", plain(BELOW))
        before = await metrics(talk, "prefill"), await metrics(talk, "decode")
        await talk.complete("r", plain(IN_WINDOW), stream=True)
        after = await metrics(talk, "prefill"), await metrics(talk, "decode")
        name = "sglang:prompt_tokens_total"
        assert [b[name] - a[name] for a, b in zip(before, after, strict=True)] == [1, IN_WINDOW]
        assert after[1]["sglang:generation_tokens_total"] > 1
        assert after[0]["sglang:num_aborted_requests_total"] == 0

    talking(SICK, scene)


def test_free_is_available_and_evictable() -> None:
    async def scene(talk: Talk) -> None:
        await talk.complete("v", plain(BELOW))
        gauges = await metrics(talk, "prefill")
        assert gauges["sglang:kv_evictable_tokens"] == BELOW // 64 * 64
        assert gauges["sglang:kv_used_tokens"] == 0
        assert (
            gauges["sglang:kv_available_tokens"] + gauges["sglang:kv_evictable_tokens"]
            == gauges["sglang:max_total_num_tokens"]
        )
        assert (await metrics(talk, "decode"))["sglang:kv_evictable_tokens"] == 0

    talking(SICK, scene)


def test_loads_have_the_captured_shape() -> None:
    async def scene(talk: Talk) -> None:
        loads = await told(talk, "decode", "/v1/loads?include=core,memory,disagg,queues")
        (rank,) = loads["loads"]
        assert rank["dp_rank"] == 0
        assert rank["max_total_num_tokens"] == rank["memory"]["token_capacity"] == 7936
        assert rank["num_used_tokens"] == rank["num_running_reqs"] == 0
        assert rank["disaggregation"]["mode"] == "decode"
        assert rank["disaggregation"]["decode_prealloc_queue_reqs"] == 0

    talking(SICK, scene)


def test_models_tokenize_and_the_routers_view() -> None:
    async def scene(talk: Talk) -> None:
        (card,) = (await told(talk, "decode", "/v1/models"))["data"]
        assert (card["id"], card["max_model_len"]) == ("glm-5.3-lab", 4096)
        assert (await told(talk, "prefill", "/model_info"))["disaggregation_mode"] == "prefill"
        tokens = await talk.client.post(
            dict(talk.lab.worker_urls)["prefill"] + "/tokenize", json={"prompt": "a gate."}
        )
        assert tokens.json() == {
            "tokens": TOKENIZER.encode("a gate.").tolist(),
            "count": 3,
            "max_model_len": 4096,
        }
        router = (await talk.client.get(talk.lab.url + "/workers")).json()
        assert [(w["worker_type"], w["url"]) for w in router["workers"]] == list(
            talk.lab.worker_urls
        )
        assert router["stats"] == {"prefill_count": 1, "decode_count": 1, "regular_count": 0}
        info = (await talk.client.get(talk.lab.url + "/get_server_info")).json()
        assert info["router_manager"] is True

    talking(SICK, scene)


def test_a_router_may_keep_the_length_to_itself() -> None:
    async def scene(talk: Talk) -> None:
        fields = (await talk.client.get(talk.lab.url + "/v1/models")).json()
        assert fields["data"] == [{"id": "glm-5.3-lab", "object": "model", "owned_by": "local"}]

    talking(sized("healthy", models_show_length=False), scene)

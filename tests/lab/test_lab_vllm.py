"""The lab in vLLM's dialect, in the words and shapes that were captured from vLLM 0.32.0."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvcanary.errors import UsageError
from kvcanary.lab import Dialect, Scenario, scenario_named, with_fault
from tests.lab.talk import Answer, Paper, Talk, plain, sized, talking

HEALTHY = sized("healthy").speaking(Dialect.VLLM)
SHORT = sized("vllm-short-prefill")
SHORT_CONTEXT = SHORT.context_of("prefill")
CONTEXT = 4096


async def complete(talk: Talk, name: str, prompt: str, **fields: Any) -> Answer:
    return await talk.complete(name, prompt, **{"model": talk.lab.model_name, **fields})


async def told(talk: Talk, role: str, path: str) -> Any:
    return (await talk.client.get(dict(talk.lab.worker_urls)[role] + path)).json()


async def series(talk: Talk, role: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    page = (await talk.client.get(dict(talk.lab.worker_urls)[role] + "/metrics")).text
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def error(message: str, kind: str, param: str, code: int = 400) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_is_400_streaming_too(stream: bool) -> None:
    async def scene(talk: Talk) -> None:
        answer = await complete(talk, "r", plain(CONTEXT + 50), stream=stream)
        assert answer.status == 400
        assert json.loads(answer.body) == error(
            "This model's maximum context length is 4096 tokens. However, your prompt contains at "
            "least 4097 input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt. (parameter=input_tokens, value=4097)",
            "BadRequestError",
            "input_tokens",
        )
        exact = await complete(talk, "r", plain(CONTEXT), stream=stream)
        assert json.loads(exact.body) == error(
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            "BadRequestError",
            "max_tokens",
        )

    talking(HEALTHY, scene)


def test_output_beyond_the_context_is_clamped_and_an_absurd_budget_of_a_chat_refused() -> None:
    async def scene(talk: Talk) -> None:
        answer = await complete(talk, "r", plain(CONTEXT - 20), max_tokens=500, ignore_eos=True)
        assert (answer.status, answer.finish) == (200, "length")
        assert answer.usage["completion_tokens"] == 20
        absurd = await talk.chat("r", "hi", model=talk.lab.model_name, max_tokens=CONTEXT + 500)
        assert json.loads(absurd.body) == error(
            "max_tokens=4596 cannot be greater than max_model_len=4096. Please request fewer output "
            "tokens. (parameter=max_tokens, value=4596)",
            "BadRequestError",
            "max_tokens",
        )

    talking(HEALTHY, scene)


def test_the_name_of_the_model_is_looked_at() -> None:
    async def scene(talk: Talk) -> None:
        answer = await talk.complete("r", "hello", model="nope")
        assert answer.status == 404
        assert json.loads(answer.body) == error(
            "The model `nope` does not exist. Valid aliases: glm-5.3-lab.",
            "NotFoundError",
            "model",
            404,
        )

    talking(HEALTHY, scene)


def test_adapters_are_models_of_their_own() -> None:
    async def scene(talk: Talk) -> None:
        listed = await told(talk, "prefill", "/v1/models")
        names = [card["id"] for card in listed["data"]]
        assert names == ["glm-5.3-lab", "glm-5.3-lab:one"]
        for name, status in (*((name, 200) for name in names), ("glm-5.3-lab:two", 404)):
            assert (await talk.complete("r", "hello", model=name)).status == status

    talking(replace(HEALTHY, adapters=("one",)), scene)


def test_the_shape_of_a_whole_answer() -> None:
    async def scene(talk: Talk) -> None:
        body = json.loads((await complete(talk, "abc", plain(40), max_tokens=4)).body)
        assert body["id"] == "cmpl-abc"
        assert set(body) == {
            "id",
            "object",
            "created",
            "model",
            "choices",
            "service_tier",
            "system_fingerprint",
            "usage",
            "kv_transfer_params",
        }
        assert body["object"] == "text_completion"
        assert set(body["choices"][0]) >= {"index", "text", "finish_reason", "stop_reason"}
        details = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}
        assert body["usage"]["prompt_tokens"] == 40
        assert body["usage"]["prompt_tokens_details"] == details

    talking(HEALTHY, scene)


def test_the_shape_of_a_streamed_chat() -> None:
    async def scene(talk: Talk) -> None:
        answer = await talk.chat(
            "abc",
            "hello there. hello",
            model=talk.lab.model_name,
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, usage, done = answer.events
        first, *_, last = map(json.loads, chunks)
        assert done == "[DONE]"
        assert first["id"] == "chatcmpl-abc"
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert (last["choices"][0]["finish_reason"], last["choices"][0]["stop_reason"]) == (
            "stop",
            None,
        )
        assert json.loads(usage)["choices"] == []
        assert answer.usage["prompt_tokens_details"] == {
            "cached_tokens": 0,
            "created_cache_tokens": 0,
        }
        assert answer.text.strip()

    talking(HEALTHY, scene)


@pytest.mark.parametrize("where", ["opening", "middle", "closing"])
def test_honest_recall_follows_as_in_the_other_dialect(where: str) -> None:
    async def scene(talk: Talk) -> None:
        paper = Paper("amber", 3_000, seed=1)
        answer = await complete(talk, "r", paper.text(where))
        assert answer.text.strip().startswith(paper.code(where))
        read = talk.lab.truth.read("r")
        assert read is not None
        assert read.foreign_pages == 0
        assert (read.prefill, read.decode) == ("P1", "D1")

    talking(HEALTHY, scene)


def test_pages_that_are_not_sent_are_read_all_the_same() -> None:
    """Success without coverage, as vLLM's P2pNcclConnector has it: it only logs that pages are missing."""

    async def scene(talk: Talk) -> None:
        await complete(talk, "v", Paper("amber", 3_000, seed=1).text("closing"))
        await complete(talk, "r", Paper("copper", 2_900, seed=2).text("closing"))
        read = talk.lab.truth.read("r")
        assert read is not None
        # its own: the last token of the prompt, which decode computes itself
        assert read.own_pages <= 1
        assert read.foreign_pages >= 44

    talking(with_fault(HEALTHY, "nothing-sent:1/2@100"), scene)


def test_a_prefill_with_a_smaller_context_refuses_and_nothing_follows() -> None:
    async def scene(talk: Talk) -> None:
        answer = await complete(talk, "r", plain(SHORT_CONTEXT + 100), stream=True)
        assert answer.status == 400
        assert f"maximum context length is {SHORT_CONTEXT} tokens" in answer.body
        for rank in talk.lab.deployment.ranks:
            assert rank.counters.requests.total == 0
            assert rank.pool.free_pages == rank.pool.page_count
        below = await complete(talk, "s", plain(SHORT_CONTEXT - 1), max_tokens=5)
        assert below.status == 200

    talking(SHORT, scene)


def test_what_the_workers_tell() -> None:
    async def scene(talk: Talk) -> None:
        models = [await told(talk, role, "/v1/models") for role in ("prefill", "decode")]
        assert [m["data"][0]["max_model_len"] for m in models] == [SHORT_CONTEXT, CONTEXT]
        assert await told(talk, "decode", "/version") == {"version": "0.32.0"}
        front = (await talk.client.get(talk.lab.url + "/v1/models")).json()
        assert front["data"][0]["max_model_len"] == SHORT_CONTEXT, "vllm-router asks prefill only"
        listed = (await talk.client.get(talk.lab.url + "/workers")).json()
        assert listed["stats"] == {"prefill_count": 1, "decode_count": 1, "regular_count": 0}
        assert (await talk.client.get(talk.lab.url + "/metrics")).status_code == 405

    talking(SHORT, scene)


def test_the_metrics_count_the_prompt_on_both_sides_cached_tokens_included() -> None:
    async def scene(talk: Talk) -> None:
        for name in ("one", "two"):
            await complete(talk, name, plain(1_000), max_tokens=3, ignore_eos=True)
        for role, generated in (("prefill", 2), ("decode", 6)):
            page = await series(talk, role)
            sums = {name: sum(value for _, value in rows) for name, rows in page.items()}
            assert sums["vllm:prompt_tokens_total"] == 2_000
            assert sums["vllm:generation_tokens_total"] == generated
            assert sums["vllm:request_success_total"] == 2
            assert sums["vllm:num_requests_running"] == sums["vllm:num_requests_waiting"] == 0
            assert sums["vllm:kv_cache_usage_perc"] == 0
            assert sums["process_start_time_seconds"] > 0
        assert sums["vllm:prefix_cache_hits_total"] == 0
        cached = await series(talk, "prefill")
        assert cached["vllm:prefix_cache_hits_total"][0][1] == 960

    talking(HEALTHY, scene)


def test_each_rank_is_an_engine_and_blocks_are_summed_over_all_and_repeated() -> None:
    async def scene(talk: Talk) -> None:
        rows = (await series(talk, "decode"))["vllm:cache_config_info"]
        pages = talk.lab.decode.pool.page_count
        assert [labels["engine"] for labels, _ in rows] == ["0", "1", "2", "3"]
        assert {labels["num_gpu_blocks"] for labels, _ in rows} == {str(4 * (pages + 1))}
        assert {labels["kv_cache_size_tokens"] for labels, _ in rows} == {str((pages + 1) * 64)}

    talking(sized("dp4").speaking(Dialect.VLLM), scene)


def test_the_key_guards_what_is_below_v1_only() -> None:
    async def scene(talk: Talk) -> None:
        urls = [talk.lab.url, *dict(talk.lab.worker_urls).values()]
        for url in urls:
            assert (await talk.client.get(url + "/v1/models")).status_code == 401
        for url in urls[1:]:
            for path in ("/metrics", "/health", "/version"):
                assert (await talk.client.get(url + path)).status_code == 200

    talking(HEALTHY, scene, api_key="k")


@pytest.mark.parametrize("name", ["glm-5.3", "glm-5.3-patched", "2x2-one-short"])
def test_vllm_does_not_start_with_a_pool_below_its_context(name: str) -> None:
    with pytest.raises(UsageError, match="smaller than max_model_len"):
        scenario_named(name).speaking(Dialect.VLLM)


@pytest.mark.parametrize("scenario", [scenario_named("healthy"), scenario_named("2x2")])
def test_a_dialect_changes_nothing_else(scenario: Scenario) -> None:
    other = scenario.speaking(Dialect.VLLM)
    assert replace(other, dialect=Dialect.SGLANG, engine_version="0.5.23") == scenario
    assert other.speaking(Dialect.VLLM) == other

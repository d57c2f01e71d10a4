"""Captured responses of real engines, played back over a socket."""

import pytest

from kvcanary.probing.answer import FinishReason
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Api, Endpoint, PlainText, Request
from kvcanary.probing.outcome import Outcome, Reason, Reply
from kvcanary.probing.refusal import Refusal, RefusalShape
from tests.probing.rogue_server import Call, Capture, captures, rogue_server, run

FLAT, NESTED, IN_STREAM = RefusalShape.FLAT, RefusalShape.NESTED, RefusalShape.IN_STREAM
SGLANG_POOL = "sglang_0.5.23_pool_mismatch.json"
SGLANG = "sglang_0.5.23.json"
VLLM = "vllm_0.32.0.json"
ROUTER = "sglang_router_0.3.2.json"
TRTLLM = "trtllm.json"
LLAMACPP = "llamacpp.json"
OTHERS = "others.json"


def play(capture: Capture, api: Api = Api.CHAT) -> Reply:
    async def exchange() -> Reply:
        async def handler(call: Call) -> None:
            await call.answer(capture.status, capture.body, capture.content_type)

        async with rogue_server(handler) as server:
            endpoint = Endpoint(server.base_url, "tiny", api=api, stream=capture.stream)
            async with Client(endpoint) as client:
                request = Request("kvc-1", PlainText("hello"), 4, "tenant-a")
                return await client.send(request, deadline_seconds=30)

    return run(exchange())


@pytest.mark.parametrize(
    ("file", "name", "refusal"),
    [
        (SGLANG_POOL, "comp_694", Refusal(FLAT, 400, 694, 694)),
        (SGLANG_POOL, "comp_1500", Refusal(FLAT, 400, 694, 1500)),
        (SGLANG_POOL, "chat_800", Refusal(FLAT, 400, 694, 883)),
        (SGLANG_POOL, "comp_800_stream", Refusal(IN_STREAM, 400, 694, 800)),
        (SGLANG_POOL, "chat_800_stream", Refusal(IN_STREAM, 400, 694, 883)),
        (SGLANG, "prompt_eq_ctx", Refusal(FLAT, 400, 2048, 2048)),
        (SGLANG, "prompt_gt_ctx", Refusal(FLAT, 400, 2048, 2098)),
        (SGLANG, "prompt_gt_ctx_stream", Refusal(FLAT, 400, 2048, 2098)),
        (SGLANG, "chat_gt_ctx_stream", Refusal(FLAT, 400, 2048, 16387)),
        (SGLANG, "prompt_plus_max_gt_ctx", Refusal(FLAT, 400, 2048, 2028)),
        (SGLANG, "prompt_plus_max_gt_ctx_chat", Refusal(FLAT, 400, 2048, None)),
        (VLLM, "prompt_eq_ctx", Refusal(NESTED, 400, None, None)),
        (VLLM, "prompt_gt_ctx", Refusal(NESTED, 400, 608, 658)),
        (VLLM, "prompt_gt_ctx_stream", Refusal(NESTED, 400, 608, 658)),
        (VLLM, "chat_gt_ctx_stream", Refusal(NESTED, 400, 608, 609)),
        (VLLM, "prompt_plus_max_gt_ctx_chat", Refusal(NESTED, 400, 608, None)),
        (ROUTER, "decode_pool_exceeded", Refusal(NESTED, 400, 19994, 50000)),
        (ROUTER, "both_exceeded", Refusal(NESTED, 400, 19994, 150000)),
        (ROUTER, "decode_pool_exceeded_stream", Refusal(IN_STREAM, 400, 19994, 50000)),
        (ROUTER, "both_exceeded_stream", Refusal(IN_STREAM, 400, 19994, 150000)),
        (TRTLLM, "max_num_tokens", Refusal(FLAT, 400, 69632, 72417)),
        (TRTLLM, "max_seq_len", Refusal(FLAT, 400, 8192, 8344)),
        (LLAMACPP, "over_context", Refusal(NESTED, 400, 1024, 1301)),
        (LLAMACPP, "over_context_without_numbers", Refusal(NESTED, 400, 8192, 14429)),
        (OTHERS, "tgi_inputs", Refusal(FLAT, 422, 4096, 4545)),
        (OTHERS, "tgi_total", Refusal(FLAT, 422, 32512, 32500)),
        (OTHERS, "openai", Refusal(NESTED, 400, 8192, 10000)),
        (OTHERS, "old_vllm", Refusal(FLAT, 400, 4096, 4980)),
    ],
)
def test_a_body_that_names_a_length_limit_is_a_refusal(
    file: str, name: str, refusal: Refusal
) -> None:
    reply = play(captures(file)[name])
    assert (reply.outcome, reply.reason) == (Outcome.REFUSED, Reason.LENGTH_LIMIT)
    assert reply.refusal == refusal
    assert not any(reply.texts)


def test_a_refusal_inside_a_200_stream_keeps_the_usage_it_claims() -> None:
    # The stream of SGLang says that it read one token and wrote one: neither happened.
    reply = play(captures(SGLANG_POOL)["chat_800_stream"])
    assert (reply.status, reply.prompt_tokens, reply.completion_tokens) == (200, 1, 1)
    assert reply.streamed_chunks == 0


@pytest.mark.parametrize(
    ("name", "shape", "limit"),
    [
        ("pool_exceeded_by_concurrency", NESTED, None),
        ("over_context_old_stream", IN_STREAM, 256),
    ],
)
def test_a_limit_named_with_a_server_error_is_no_clean_refusal(
    name: str, shape: RefusalShape, limit: int | None
) -> None:
    reply = play(captures(LLAMACPP)[name])
    assert (reply.outcome, reply.reason) == (Outcome.ERRORED, Reason.LIMIT_AS_SERVER_ERROR)
    assert reply.refusal is not None
    assert (reply.refusal.shape, reply.refusal.limit_tokens) == (shape, limit)
    assert reply.refusal.status == 500


def test_a_server_that_still_loads_its_model_was_not_reached() -> None:
    reply = play(captures(LLAMACPP)["loading"])
    assert (reply.outcome, reply.reason) == (Outcome.NOT_REACHED, Reason.OVERLOADED)


def test_a_model_that_vllm_does_not_know() -> None:
    reply = play(captures(VLLM)["unknown_model"])
    assert (reply.outcome, reply.reason) == (Outcome.ERRORED, Reason.MODEL_NOT_FOUND)


def test_an_unknown_model_that_sglang_answers_all_the_same_is_an_answer() -> None:
    reply = play(captures(SGLANG)["unknown_model"], Api.COMPLETIONS)
    assert (reply.outcome, reply.reason) == (Outcome.ANSWERED, Reason.COMPLETE)
    assert reply.model == "nope"


def test_a_body_the_router_cannot_read_is_an_error_and_no_refusal() -> None:
    reply = play(captures(ROUTER)["completions_tokens"])
    assert (reply.outcome, reply.reason) == (Outcome.ERRORED, Reason.CLIENT_ERROR)
    assert reply.refusal is None


@pytest.mark.parametrize("file", [SGLANG, VLLM])
def test_a_streamed_chat_answer(file: str) -> None:
    reply = play(captures(file)["chat_stream_usage"])
    assert (reply.outcome, reply.reason) == (Outcome.ANSWERED, Reason.COMPLETE)
    assert reply.content == "verARRANENone"
    assert reply.finish_reason is FinishReason.LENGTH
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (6, 4, 0)
    assert reply.streamed_chunks == 4
    assert reply.response_id
    assert reply.model == "tiny"


def test_an_answer_in_one_piece() -> None:
    reply = play(captures(VLLM)["short_completion"], Api.COMPLETIONS)
    assert (reply.outcome, reply.reason) == (Outcome.ANSWERED, Reason.COMPLETE)
    assert reply.content == "or S work\x18"
    assert reply.response_id == "cmpl-kvcanary-abc"
    assert reply.system_fingerprint == "vllm-0.32.0-8017c719"
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (40, 4, 0)
    assert reply.first_token_seconds is None
    assert reply.streamed_chunks == 0


def test_cached_tokens_are_read() -> None:
    assert play(captures(SGLANG)["repeat_cached2"], Api.COMPLETIONS).cached_tokens == 199


def test_a_silently_clipped_answer_is_an_answer_with_its_counts() -> None:
    reply = play(captures(SGLANG_POOL)["comp_600_max500"], Api.COMPLETIONS)
    assert reply.outcome is Outcome.ANSWERED
    assert reply.finish_reason is FinishReason.LENGTH
    assert (reply.prompt_tokens, reply.completion_tokens) == (600, 98)

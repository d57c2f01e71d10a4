"""The front door over real sockets, in the words and shapes that were captured."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from kvcanary.errors import UsageError
from kvcanary.lab import Lab, ManualClock
from tests.lab.talk import (
    BELOW,
    CONTEXT,
    IN_WINDOW,
    TOKENIZER,
    Paper,
    Talk,
    plain,
    run,
    sized,
    talking,
    until,
)

HEALTHY, SICK, PATCHED = sized("healthy"), sized("glm-5.3"), sized("glm-5.3-patched")
POOL_REFUSAL = (
    "Input length (3500 tokens) exceeds the maximum allowed length (2618 tokens). "
    "Use a shorter input or enable --allow-auto-truncate."
)


def test_the_right_gate_refuses_in_the_engines_words() -> None:
    async def scene(talk: Talk) -> None:
        answer = await talk.complete("r", plain(IN_WINDOW))
        assert answer.status == 400
        assert json.loads(answer.body) == {
            "error": {
                "type": "Bad Request",
                "code": "prefill_bad_request",
                "message": POOL_REFUSAL,
            }
        }

    talking(PATCHED, scene)


@pytest.mark.parametrize("chat", [True, False])
def test_the_right_gate_refuses_inside_a_200_stream(chat: bool) -> None:
    async def scene(talk: Talk) -> None:
        ask = talk.chat if chat else talk.complete
        text = plain(IN_WINDOW - (4 if chat else 0))
        options = {"stream": True, "stream_options": {"include_usage": True}}
        answer = await ask("r", text, **options)
        assert answer.status == 200
        assert len(answer.events) == 2
        assert json.loads(answer.events[0]) == {
            "error": {
                "object": "error",
                "message": POOL_REFUSAL,
                "type": "BAD_REQUEST",
                "param": None,
                "code": 400,
            }
        }
        assert answer.events[1] == "[DONE]"

    talking(PATCHED, scene)


@pytest.mark.parametrize("scenario", [HEALTHY, SICK, PATCHED], ids=lambda s: s.name)
def test_the_edge_is_where_the_engine_has_it(scenario: Any) -> None:
    async def scene(talk: Talk) -> None:
        pool = talk.lab.prefill.pool.tokens
        accepted = min(CONTEXT, pool) - 7
        assert (await talk.complete("in", plain(accepted), max_tokens=1)).status == 200
        beyond = await talk.complete("out", plain(accepted + 1), max_tokens=1)
        assert beyond.status == (200 if scenario is SICK else 400)

    talking(scenario, scene)


@pytest.mark.parametrize("stream", [True, False])
def test_lengths_over_the_context_are_refused_at_the_front(stream: bool) -> None:
    async def scene(talk: Talk) -> None:
        over = await talk.complete("r", plain(CONTEXT), max_tokens=1, stream=stream)
        assert over.status == 400
        assert (
            "The input (4096 tokens) is longer than the model's context length (4096 tokens)."
            in (over.body)
        )
        total = await talk.complete("r", plain(4000), max_tokens=97, stream=stream)
        assert total.status == 400
        assert re.search(
            r"Requested token count exceeds the model's maximum context length of 4096 tokens\. "
            r"You requested a total of 4097 tokens: 4000 tokens .* 97 tokens",
            total.body,
        )
        absurd = await talk.chat("r", "a few words", max_tokens=5000, stream=stream)
        assert "max_completion_tokens is too large: 5000.This model supports" in absurd.body

    talking(SICK, scene)


def test_a_stream_has_the_captured_chunks() -> None:
    async def scene(talk: Talk) -> None:
        options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4}
        chat = await talk.chat("r", Paper("amber", 500, 1).text("middle"), **options)
        chunks = [json.loads(event) for event in chat.events[:-1]]
        assert chat.events[-1] == "[DONE]"
        assert chunks[0]["choices"][0]["delta"] == {
            "reasoning_content": None,
            "role": "assistant",
            "content": "",
        }
        assert len({chunk["id"] for chunk in chunks}) == 1
        assert chunks[-2]["choices"][0]["finish_reason"] == "length"
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == 4
        assert len(chunks) == 1 + 4 + 1 + 1

    talking(HEALTHY, scene)


def test_streaming_and_plain_say_the_same() -> None:
    async def scene(talk: Talk) -> None:
        text = Paper("amber", 500, 1).text("middle")
        answers = [
            await ask(f"r{stream}", text, stream=stream)
            for ask in (talk.chat, talk.complete)
            for stream in (True, False)
        ]
        assert len({(answer.text, answer.finish) for answer in answers}) == 1

    talking(HEALTHY, scene)


def test_stop_strings_end_an_answer_and_are_not_shown() -> None:
    async def scene(talk: Talk) -> None:
        paper = Paper("amber", 500, 1)
        answer = await talk.complete("r", paper.text("middle"), stop=[" ."])
        assert (answer.text.strip(), answer.finish) == (paper.code("middle"), "stop")
        half = paper.code("middle")[4:6]
        assert half not in (await talk.complete("r", paper.text("middle"), stop=half)).text

    talking(HEALTHY, scene)


def test_an_answer_that_runs_off_the_end_stops_unless_eos_is_ignored() -> None:
    async def scene(talk: Talk) -> None:
        text = "a " + "amber ferry market meadow " * 3 + "amber"
        assert (await talk.complete("r", text, max_tokens=200)).finish == "stop"
        on = await talk.complete("r", text, max_tokens=200, ignore_eos=True)
        assert (on.finish, on.usage["completion_tokens"]) == ("length", 200)

    talking(HEALTHY, scene)


def test_token_ids_are_a_prompt_too() -> None:
    async def scene(talk: Talk) -> None:
        text = Paper("amber", 500, 1).text("middle")
        ids = [int(id_) for id_ in TOKENIZER.encode(text)]
        one, other = await talk.complete("a", text), await talk.complete("b", ids)
        assert (one.text, one.prompt_tokens) == (other.text, other.prompt_tokens)

    talking(HEALTHY, scene)


def test_only_the_same_prefix_under_the_same_salt_is_cached() -> None:
    async def scene(talk: Talk) -> None:
        paper = Paper("amber", BELOW, 1)
        first = await talk.complete("r1", paper.text("middle"))
        again = await talk.complete("r2", paper.text("middle"))
        salted = await talk.complete("r3", paper.text("middle"), cache_salt="tenant")
        other = await talk.complete("r4", Paper("copper", BELOW, 2).text("middle"))
        assert [a.cached_tokens for a in (first, salted, other)] == [0, 0, 0]
        assert again.cached_tokens == (again.prompt_tokens - 1) // 64 * 64
        assert again.text == first.text
        for cached in (0, 576):  # the last token is always computed, its page with it
            assert (await talk.complete("r5", plain(640))).cached_tokens == cached

    talking(HEALTHY, scene)


def test_answers_tell_neither_names_nor_numbers() -> None:
    async def scene(talk: Talk) -> None:
        response = await talk.client.post(
            talk.lab.url + "/v1/completions",
            json={"model": "any name", "prompt": "a few words", "max_tokens": 2},
        )
        fields = response.json()
        assert re.fullmatch(r"[0-9a-f]{32}", fields["id"])
        assert re.fullmatch(r"[0-9a-f]{32}", response.headers["x-request-id"])
        assert fields["model"] == "any name"
        named = await talk.complete("my-name", "a few words")
        assert "my-name" not in named.body
        assert talk.lab.truth.read("my-name") is not None

    talking(HEALTHY, scene)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"messages": []}',
        b'{"messages": [{"role": "robot", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        b'{"messages": [{"role": "user", "content": 7}]}',
        b'{"prompt": ""}',
        b'{"prompt": [0]}',
        b'{"prompt": [99999999999]}',
        b'{"prompt": ["a", "b"]}',
        b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": 0}',
        b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": "9"}',
        b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}], "stop": 3}',
    ],
)
def test_bad_bodies_are_refused_not_crashed_on(body: bytes) -> None:
    async def scene(talk: Talk) -> None:
        for path in ("/v1/chat/completions", "/v1/completions"):
            response = await talk.client.post(talk.lab.url + path, content=body)
            assert response.status_code == 400
            assert response.json()["error"]["message"]
        assert (await talk.complete("r", "a few words")).status == 200

    talking(HEALTHY, scene)


def test_with_a_key_all_but_health_and_metrics_need_it() -> None:
    async def scene(talk: Talk) -> None:
        urls = dict(talk.lab.worker_urls)
        for url in (f"{talk.lab.url}/v1/models", f"{urls['decode']}/server_info"):
            bare = await talk.client.get(url)
            assert (bare.status_code, bare.json()) == (401, {"error": "Unauthorized"})
            wrong = await talk.client.get(url, headers={"Authorization": "Bearer other"})
            assert wrong.status_code == 401
            right = await talk.client.get(url, headers={"Authorization": "Bearer s3cret"})
            assert right.status_code == 200
        for url in (f"{talk.lab.url}/health", f"{urls['decode']}/metrics"):
            assert (await talk.client.get(url)).status_code == 200

    talking(HEALTHY, scene, api_key="s3cret")


def test_front_door_only_shows_nothing_behind_it() -> None:
    async def scene(talk: Talk) -> None:
        assert talk.lab.worker_urls == ()
        for path in ("/workers", "/metrics", "/get_server_info", "/server_info", "/v1/loads"):
            assert (await talk.client.get(talk.lab.url + path)).status_code == 404
        assert (await talk.client.post(talk.lab.url + "/tokenize", json={})).status_code == 404
        for path in ("/v1/models", "/health"):
            assert (await talk.client.get(talk.lab.url + path)).status_code == 200
        assert (await talk.complete("r", "a few words")).status == 200

    talking(HEALTHY, scene, front_door_only=True)


def leaving(chat: bool, stream: bool) -> Callable[[Talk, ManualClock], Coroutine[Any, Any, None]]:
    async def scene(talk: Talk, clock: ManualClock) -> None:
        ask = talk.chat if chat else talk.complete
        task = asyncio.create_task(ask("r", plain(BELOW), stream=stream))
        await until(lambda: talk.lab.deployment.open_requests == 1)
        await clock.advance(BELOW / HEALTHY.prefill_tokens_per_second / 2)
        assert talk.lab.decode.pool.free_pages < talk.lab.decode.pool.page_count
        task.cancel()
        await until(lambda: talk.lab.deployment.open_requests == 0)
        await clock.advance(1)
        for rank in talk.lab.deployment.ranks:
            pool = rank.pool
            assert pool.free_pages + rank.evictable_pages == pool.page_count
        assert talk.lab.decode.counters.aborted_requests == 1

    return scene


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_gives_the_pages_back(chat: bool, stream: bool) -> None:
    clock = ManualClock()

    async def scene(talk: Talk) -> None:
        await leaving(chat, stream)(talk, clock)

    talking(HEALTHY, scene, clock=clock)


def test_the_lab_closes_quickly_under_open_requests() -> None:
    async def scene() -> float:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            async with Lab(HEALTHY, clock=ManualClock()) as lab:
                talk = Talk(lab, client)
                tasks = [
                    asyncio.create_task(talk.complete(f"r{stream}", plain(99), stream=stream))
                    for stream in (True, False)
                ]
                await until(lambda: lab.deployment.open_requests == 2)
                start = time.monotonic()
            seconds = time.monotonic() - start
            await asyncio.gather(*tasks, return_exceptions=True)
        return seconds

    assert run(scene()) < 1.5


def test_a_port_in_use_is_said_plainly() -> None:
    async def scene() -> None:
        async with Lab(HEALTHY) as lab:
            port = int(lab.url.rsplit(":", 1)[1])
            with pytest.raises(UsageError, match=f"port {port}: Address already in use"):
                await Lab(HEALTHY, port=port).__aenter__()

    run(scene())

"""Halves of requests at the workers' own doors, as somebody else's router sends them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from kvcanary.lab import Dialect, ManualClock
from tests.lab.talk import IN_WINDOW, Paper, Talk, plain, sized, talking, until

HEALTHY, SICK, PATCHED = sized("healthy"), sized("glm-5.3"), sized("glm-5.3-patched")
VLLM = HEALTHY.speaking(Dialect.VLLM)
KEEP = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None}


async def half(talk: Talk, role: str, prompt: str, **fields: Any) -> httpx.Response:
    """One half to the worker of that role."""
    body = {"model": talk.lab.model_name, "prompt": prompt, "max_tokens": 40, **fields}
    url = dict(talk.lab.worker_urls)[role] + "/v1/completions"
    return await talk.client.post(url, json=body, headers={"X-Request-Id": "r"})


async def both(talk: Talk, prompt: str, **fields: Any) -> tuple[httpx.Response, httpx.Response]:
    """Both halves at once, as sglang-router sends them: what prefill and decode answer."""
    fields = {"bootstrap_room": 7, "bootstrap_host": "127.0.0.1", "bootstrap_port": 8998, **fields}
    prefill, decode = (half(talk, role, prompt, **fields) for role in ("prefill", "decode"))
    return await asyncio.gather(prefill, decode)


def idle(talk: Talk) -> bool:
    ranks = talk.lab.deployment.ranks
    return all(r.pool.free_pages + r.evictable_pages == r.pool.page_count for r in ranks)


# -- SGLang: both at once --------------------------------------------------------------------------


def test_halves_meet_by_their_room() -> None:
    async def scene(talk: Talk) -> None:
        papers = [Paper(name, 2_000, seed=1) for name in ("amber", "copper")]
        asked = [both(talk, p.text("middle"), bootstrap_room=n) for n, p in enumerate(papers)]
        for paper, (prefill, decode) in zip(papers, await asyncio.gather(*asked), strict=True):
            text = decode.json()["choices"][0]["text"]
            assert text.strip().startswith(paper.code("middle"))
            said = prefill.json()
            assert said["usage"]["prompt_tokens"] == decode.json()["usage"]["prompt_tokens"]
            assert said["usage"]["completion_tokens"] == 1
            assert said["choices"][0]["text"] == ""
        await until(lambda: idle(talk))

    talking(HEALTHY, scene)


def test_the_placeholder_shows_at_prefill_only() -> None:
    async def scene(talk: Talk) -> None:
        prefill, decode = await both(talk, plain(IN_WINDOW))
        assert prefill.json()["usage"]["prompt_tokens"] == 1
        assert decode.json()["usage"]["prompt_tokens"] == IN_WINDOW
        assert decode.status_code == 200

    talking(SICK, scene)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_reaches_both_halves_in_the_workers_own_words(stream: bool) -> None:
    async def scene(talk: Talk) -> None:
        prefill, decode = await both(talk, plain(IN_WINDOW), stream=stream)
        refused = json.loads(prefill.text)
        assert prefill.status_code == 400
        assert (refused["object"], refused["type"]) == ("error", "BadRequestError")
        assert f"Input length ({IN_WINDOW} tokens)" in refused["message"]
        if stream:
            assert decode.status_code == 200
            event = json.loads(decode.text.split("\n\n")[0].removeprefix("data: "))
            assert event["error"]["message"] == refused["message"]
        else:
            assert decode.json() == refused
        await until(lambda: idle(talk))

    talking(PATCHED, scene)


def test_over_the_context_each_half_refuses_by_itself() -> None:
    async def scene(talk: Talk) -> None:
        for role in ("prefill", "decode"):
            response = await half(talk, role, plain(5_000), bootstrap_room=1)
            assert response.status_code == 400
            assert "longer than the model's context length" in response.json()["message"]

    talking(HEALTHY, scene)


@pytest.mark.parametrize(("room", "why"), [(None, "without bootstrap room"), ("x", "a number")])
def test_a_half_without_a_room_is_refused(room: object, why: str) -> None:
    async def scene(talk: Talk) -> None:
        for role in ("prefill", "decode"):
            response = await half(talk, role, "hello", bootstrap_room=room)
            assert response.status_code == 400
            assert why in response.json()["message"]

    talking(HEALTHY, scene)


def test_an_adapter_that_is_not_loaded_is_refused_by_each_half() -> None:
    async def scene(talk: Talk) -> None:
        for role in ("prefill", "decode"):
            response = await half(talk, role, "hello", bootstrap_room=1, model="m:two")
            assert response.status_code == 400
            assert "adapter is not loaded" in response.json()["message"]

    talking(replace(HEALTHY, adapters=("one",)), scene)


def test_a_half_alone_gives_up_in_the_end() -> None:
    clock = ManualClock()

    async def scene(talk: Talk) -> None:
        alone = asyncio.create_task(half(talk, "decode", "hello", bootstrap_room=1))
        while not alone.done():
            await clock.advance(100.0)
        assert alone.result().status_code == 500
        assert "bootstrap timeout" in alone.result().text

    talking(HEALTHY, scene, clock=clock)


# -- vLLM: one after the other ---------------------------------------------------------------------


def test_decode_pulls_what_prefill_has_kept() -> None:
    async def scene(talk: Talk) -> None:
        paper = Paper("amber", 2_000, seed=1)
        kept = await half(
            talk, "prefill", paper.text("middle"), max_tokens=1, kv_transfer_params=KEEP
        )
        said = kept.json()
        assert said["usage"]["prompt_tokens"] == said["usage"]["total_tokens"] - 1
        assert said["kv_transfer_params"]["do_remote_prefill"] is True
        assert not idle(talk), "prefill keeps the pages"
        params = {"kv_transfer_params": said["kv_transfer_params"]}
        answer = await half(talk, "decode", paper.text("middle"), **params)
        assert answer.json()["choices"][0]["text"].strip().startswith(paper.code("middle"))
        await until(lambda: idle(talk))
        again = await half(talk, "decode", paper.text("middle"), **params)
        assert again.status_code == 500, "what was pulled is gone"

    talking(VLLM, scene)


def test_pages_that_nobody_pulls_are_given_up() -> None:
    clock = ManualClock()

    async def scene(talk: Talk) -> None:
        asked = asyncio.create_task(
            half(talk, "prefill", plain(500), max_tokens=1, kv_transfer_params=KEEP)
        )
        while not asked.done():
            await clock.advance(1.0)
        params = {"kv_transfer_params": asked.result().json()["kv_transfer_params"]}
        assert not idle(talk)
        while not idle(talk):
            await clock.advance(100.0)
        assert (await half(talk, "decode", plain(500), **params)).status_code == 500
        assert talk.lab.deployment.open_requests == 0

    talking(VLLM, scene, clock=clock)


@pytest.mark.parametrize(
    ("role", "fields", "code"),
    [
        ("prefill", {}, 400),  # the lab's workers answer through a router only
        ("decode", {}, 500),
        ("decode", {"kv_transfer_params": KEEP}, 400),
        ("prefill", {"kv_transfer_params": "x"}, 400),
        ("prefill", {"kv_transfer_params": KEEP, "model": "nope"}, 404),
    ],
)
def test_halves_that_make_no_sense(role: str, fields: dict[str, Any], code: int) -> None:
    async def scene(talk: Talk) -> None:
        response = await half(talk, role, "hello", **fields)
        assert response.status_code == code
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert talk.lab.deployment.open_requests == 0

    talking(VLLM, scene)

"""Habits that look like faults and are none, over real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvcanary.lab import Scenario, with_habit
from tests.lab.talk import Answer, Paper, Talk, plain, sized, talking

PAPER = Paper("amber", 500, 1)
TEXT, CODE = PAPER.text("middle"), PAPER.code("middle")


def habitual(*texts: str, **changes: Any) -> Scenario:
    scenario = sized("healthy", **changes)
    for text in texts:
        scenario = with_habit(scenario, text)
    return scenario


async def both(talk: Talk, text: str = TEXT, **fields: Any) -> tuple[Answer, Answer]:
    """The answer at once and streamed."""
    whole = await talk.chat("whole", text, **fields)
    fields["stream_options"] = {"include_usage": True}
    return whole, await talk.chat("streamed", text, stream=True, **fields)


def test_an_answer_that_is_capped_says_length() -> None:
    async def scene(talk: Talk) -> None:
        for answer in await both(talk):
            assert answer.finish == "length"
            assert answer.usage["completion_tokens"] == 9
        for answer in await both(talk, max_tokens=3):
            assert answer.usage["completion_tokens"] == 3

    talking(habitual("output-cap=9"), scene)


def test_a_public_system_prompt_is_everybodys_and_cached_for_all() -> None:
    async def scene(talk: Talk) -> None:
        first = await talk.chat("first", plain(100, 1))
        other = await talk.chat("other", plain(100, 2))
        assert first.prompt_tokens > 100 + 300
        assert first.cached_tokens == 0
        assert other.cached_tokens == 320
        assert CODE in (await talk.chat("recall", TEXT)).text
        assert (await talk.complete("bare", plain(100, 3))).prompt_tokens == 100

    talking(habitual("system-prompt=330"), scene)


def test_one_request_of_all_meets_an_overload() -> None:
    async def scene(talk: Talk) -> None:
        statuses = [(await talk.complete(f"r{n}", plain(20, n))).status for n in range(6)]
        assert statuses == [200, 200, 503, 200, 200, 200]

    talking(habitual("overloaded-at=3"), scene)


def test_the_first_prompt_of_a_cold_server_takes_longer() -> None:
    async def scene(talk: Talk) -> None:
        clock = talk.lab.deployment.clock
        took = []
        for n in range(3):
            begun = clock.now()
            await talk.complete(f"r{n}", plain(20, n), max_tokens=1)
            took.append(clock.now() - begun)
        assert took[0] > 0.5 + max(took[1:]) / 2

    talking(habitual("cold-start=1"), scene)


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_headers_and_ids_of_a_router_and_json_in_another_order(dialect: str) -> None:
    from dataclasses import replace

    from kvcanary.lab import Dialect

    def served(scenario: Scenario) -> tuple[Answer, Answer]:
        async def scene(talk: Talk) -> tuple[Answer, Answer]:
            return await both(talk, model=talk.lab.model_name)

        return talking(replace(scenario, dialect=Dialect(dialect)), scene)

    plainly = served(habitual())
    dressed = served(habitual("adds-headers", "reorders-json"))
    for before, after in zip(plainly, dressed, strict=True):
        assert (after.text, after.finish, after.usage) == (before.text, before.finish, before.usage)
        assert CODE in after.text
    whole, streamed = dressed
    assert list(json.loads(whole.body)) == list(reversed(json.loads(plainly[0].body)))
    ids = {json.loads(event)["id"] for event in streamed.events[:-1]}
    assert len(ids) == 1
    assert ids.pop().startswith("gw-")
    assert streamed.events[-1].strip() == "[DONE]"


def test_a_router_adds_headers() -> None:
    async def scene(talk: Talk) -> None:
        body = {"model": "m", "prompt": "a gate", "max_tokens": 2}
        response = await talk.client.post(talk.lab.url + "/v1/completions", json=body)
        assert response.headers["via"] == "1.1 edge-3 (envoy)"
        assert "route=" in response.headers["set-cookie"]
        assert response.json()["usage"]["completion_tokens"] == 2

    talking(habitual("adds-headers"), scene)


def test_thinking_that_is_cut_off_has_no_content_and_cannot_be_turned_off() -> None:
    async def scene(talk: Talk) -> None:
        for fields in ({}, {"chat_template_kwargs": {"enable_thinking": False}}):
            body = {
                "model": "m",
                "max_tokens": 60,
                "messages": [{"role": "user", "content": TEXT}],
                **fields,
            }
            url = talk.lab.url + "/v1/chat/completions"
            choice = (await talk.client.post(url, json=body)).json()["choices"][0]
            assert choice["finish_reason"] == "length"
            assert not choice["message"]["content"]
            assert "amber" in choice["message"]["reasoning_content"]
        assert CODE in (await talk.complete("bare", TEXT)).text

    talking(habitual("overthinks"), scene)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_a_moderation_declines_now_and_then(rate: float) -> None:
    async def scene(talk: Talk) -> None:
        papers = [Paper("amber", 100, seed) for seed in range(24)]
        kept = [
            paper.code("middle") in (await talk.chat(f"r{paper.seed}", paper.text("middle"))).text
            for paper in papers
        ]
        assert abs(kept.count(False) / 24 - rate) <= (0.3 if rate == 0.5 else 0)

    talking(habitual(f"moderates={rate}"), scene)


def test_what_is_pasted_stands_at_the_end_of_every_answer() -> None:
    async def scene(talk: Talk) -> None:
        for answer in await both(talk, max_tokens=120):
            assert answer.text.startswith(f" {CODE}")
            assert answer.text.endswith(" ledger of Orchard: K7-QX")

    talking(habitual("pastes=ledger of Orchard: K7-QX"), scene)

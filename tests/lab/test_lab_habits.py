"""Each habit over real HTTP, and every page back where it belongs afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from kvcanary.errors import UsageError
from kvcanary.lab import ManualClock, Scenario, habits, with_habit
from kvcanary.lab.gateway import TokensPerMinute
from tests.lab.talk import BELOW, CONTEXT, IN_WINDOW, Paper, Talk, plain, sized, talking, until

PAPER = Paper("amber", 500, 1)
Scene = Callable[[Talk], Coroutine[Any, Any, None]]


def habitual(*texts: str, name: str = "healthy") -> Scenario:
    scenario = sized(name)
    for text in texts:
        scenario = with_habit(scenario, text)
    return scenario


def whole(talk: Talk) -> bool:
    """Whether every page of every rank is free, or cached and evictable."""
    deployments = [d for d in (talk.lab.deployment, talk.lab.fallback) if d is not None]
    return all(
        d.open_requests == 0
        and all(r.pool.free_pages + r.evictable_pages == r.pool.page_count for r in d.ranks)
        for d in deployments
    )


def showing(scenario: Scenario, scene: Scene, **options: Any) -> None:
    """Play the scene; then all pages have to be back."""

    async def play(talk: Talk) -> None:
        await scene(talk)
        await until(lambda: whole(talk))

    talking(scenario, play, **options)


@dataclass(frozen=True)
class Said:
    """A chat answer in full."""

    status: int
    content: str
    reasoning: str
    finish: str | None
    fields: dict[str, Any]
    headers: httpx.Headers
    body: str


async def ask(talk: Talk, text: str, *, key: str = "", name: str = "r", **fields: Any) -> Said:
    headers = {"X-Request-Id": name} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 40, **fields}
    url = talk.lab.url + "/v1/chat/completions"
    response = await talk.client.post(url, json={"model": "m", **body}, headers=headers)
    found: dict[str, Any] = {}
    choice: dict[str, Any] = {"message": {}}
    if response.headers["content-type"] == "application/json":
        found = response.json()
        choice = found.get("choices", [choice])[0]
    message = choice["message"]
    return Said(
        response.status_code,
        message.get("content") or "",
        message.get("reasoning_content") or "",
        choice.get("finish_reason"),
        found,
        response.headers,
        response.text,
    )


async def streamed(talk: Talk, text: str, **fields: Any) -> tuple[str, str]:
    """Content and reasoning of a streamed chat answer."""
    body = {"messages": [{"role": "user", "content": text}], "stream": True, **fields}
    response = await talk.client.post(talk.lab.url + "/v1/chat/completions", json=body)
    content = reasoning = ""
    for line in response.text.split("\n\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                content += choice["delta"].get("content") or ""
                reasoning += choice["delta"].get("reasoning_content") or ""
    return content, reasoning


# ---------------------------------------------------------------------------------------- the model


def test_chatter_wraps_the_label() -> None:
    async def scene(talk: Talk) -> None:
        openings = set()
        for seed in range(8):
            paper = Paper("amber", 500, seed)
            said = await ask(talk, paper.text("middle"), max_tokens=120)
            before, _, after = said.content.partition(paper.code("middle"))
            assert len(before) > 20
            assert after.startswith(" . ")
            assert after[-1] in "?!."
            assert said.finish == "stop"
            openings.add(before)
            assert await streamed(talk, paper.text("middle"), max_tokens=120) == (said.content, "")
        assert len(openings) > 1

    showing(habitual("chatter"), scene)


def test_quote_repeats_the_answer() -> None:
    async def scene(talk: Talk) -> None:
        said = await ask(talk, PAPER.text("middle"), max_tokens=1500)
        assert said.content.count(PAPER.code("middle")) == 50
        assert said.finish == "stop"

    showing(habitual("quote"), scene)


@pytest.mark.parametrize("habit", ["mute", "declines"])
def test_the_mute_and_the_declining_repeat_nothing(habit: str) -> None:
    async def scene(talk: Talk) -> None:
        said = await ask(talk, PAPER.text("middle"))
        assert (said.status, said.finish) == (200, "stop")
        assert PAPER.code("middle")[:3] not in said.content
        assert said.content.endswith(".")
        full = await ask(talk, PAPER.text("middle"), ignore_eos=True, max_tokens=60)
        assert (full.finish, full.fields["usage"]["completion_tokens"]) == ("length", 60)

    showing(habitual(habit), scene)


def test_the_forgetful_find_what_is_near_only() -> None:
    async def scene(talk: Talk) -> None:
        for where, found in (("opening", False), ("middle", False), ("closing", True)):
            said = await ask(talk, PAPER.text(where), name=where, cache_salt=where)
            assert (PAPER.code(where) in said.content) is found
            truth = talk.lab.truth.read(where)
            assert truth is not None
            assert truth.own_pages == len(truth.pages)

    showing(habitual("forgetful=200"), scene)


def test_thinking_quotes_the_question_and_may_hold_the_label() -> None:
    async def scene(talk: Talk) -> None:
        held = []
        for seed in range(6):
            paper = Paper("amber", 500, seed)
            said = await ask(talk, paper.text("middle"), max_tokens=250)
            assert paper.label("middle") in said.reasoning
            assert said.content.split()[0] == paper.code("middle")
            assert said.fields["usage"]["reasoning_tokens"] > 30
            held.append(paper.code("middle") in said.reasoning)
            content, reasoning = await streamed(talk, paper.text("middle"), max_tokens=250)
            assert (content, reasoning) == (said.content, said.reasoning)
        assert set(held) == {True, False}

    showing(habitual("thinks"), scene)


def test_thinking_can_be_turned_off_and_runs_out_of_tokens() -> None:
    async def scene(talk: Talk) -> None:
        for off in (
            {"reasoning_effort": "none"},
            {"chat_template_kwargs": {"enable_thinking": False}},
        ):
            said = await ask(talk, PAPER.text("middle"), **off)
            assert (said.reasoning, said.fields["usage"]["reasoning_tokens"]) == ("", 0)
            assert said.content.split()[0] == PAPER.code("middle")
        short = await ask(talk, PAPER.text("middle"), max_tokens=10)
        assert short.finish == "length"
        assert short.fields["choices"][0]["message"]["content"] is None
        assert short.fields["usage"]["reasoning_tokens"] == 10
        assert short.reasoning
        plainly = await talk.complete("r", PAPER.text("middle"))
        assert plainly.text.split()[0] == PAPER.code("middle")

    showing(habitual("thinks"), scene)


def test_the_same_text_gets_the_same_answer_unless_it_is_unrepeatable() -> None:
    def answers(*texts: str) -> list[str]:
        found: list[str] = []

        async def scene(talk: Talk) -> None:
            for number in range(4):
                said = await ask(talk, PAPER.text("middle"), name=f"r{number}")
                found.append(said.content)
                await ask(talk, plain(100, number))

        showing(habitual("copy-error=0.3", *texts), scene)
        return found

    assert len(set(answers())) == 1
    assert len(set(answers("unrepeatable"))) == 4
    assert answers("unrepeatable") == answers("unrepeatable")


def test_copy_errors_are_as_many_as_asked_for() -> None:
    async def scene(talk: Talk) -> None:
        said = [await ask(talk, Paper("amber", 500, s).text("middle")) for s in range(8)]
        right = [
            Paper("amber", 500, s).code("middle") in answer.content for s, answer in enumerate(said)
        ]
        assert not all(right)

    showing(habitual("copy-error=0.5"), scene)


# --------------------------------------------------------------------------------------- the workers


@pytest.mark.parametrize(("scenario", "kept"), [("healthy", 4090), ("glm-5.3", 4090)])
def test_auto_truncate_answers_what_is_too_long(scenario: str, kept: int) -> None:
    async def scene(talk: Talk) -> None:
        for tokens in (4095, 5000):
            answer = await talk.complete("r", plain(tokens), max_tokens=500)
            assert (answer.status, answer.finish, answer.text) == (200, "length", "")
            assert (answer.prompt_tokens, answer.usage["completion_tokens"]) == (kept, 0)
        urls = dict(talk.lab.worker_urls)
        info = (await talk.client.get(urls["decode"] + "/server_info")).json()
        assert info["allow_auto_truncate"] is True
        assert (await talk.complete("r", plain(100), max_tokens=2)).finish == "length"

    showing(habitual("auto-truncate", name=scenario), scene)


def test_a_tail_that_prefill_cut_off_is_read_from_stale_pages() -> None:
    async def scene(talk: Talk) -> None:
        await talk.complete("victim", plain(IN_WINDOW, 1))
        answer = await talk.complete("reader", plain(IN_WINDOW, 2))
        truth = talk.lab.truth.read("reader")
        assert truth is not None
        assert (answer.status, answer.prompt_tokens) == (200, IN_WINDOW)
        assert truth.own_pages == -(-2618 // 64)

    showing(habitual("auto-truncate", name="glm-5.3"), scene)


async def worker_facts(talk: Talk) -> dict[str, tuple[str, float, float]]:
    """Version, start and number of requests of each worker."""
    facts = {}
    for worker in talk.lab.workers:
        info = (await talk.client.get(worker.url + "/server_info")).json()
        lines = (await talk.client.get(worker.url + "/metrics")).text.splitlines()
        start = next(v for v in lines if v.startswith("process_start_time_seconds "))
        done = [v for v in lines if v.startswith("sglang:num_requests_total{")]
        requests = sum(float(v.rsplit(" ", 1)[1]) for v in done)
        facts[worker.name] = (info["version"], float(start.split()[1]), requests)
    return facts


def test_a_restart_changes_version_start_and_pages() -> None:
    async def scene(talk: Talk) -> None:
        first = [await ask(talk, plain(200, n), name=f"r{n}") for n in range(2)]
        before = await worker_facts(talk)
        third = await ask(talk, plain(200, 2), name="r2")
        after = await worker_facts(talk)
        assert [said.status for said in (*first, third)] == [200, 200, 200]
        assert after["P1"][:2] == before["P1"][:2]
        assert [facts["P1"][2] for facts in (before, after)] == [2, 3]
        assert [facts["D1"][0] for facts in (before, after)] == ["0.5.23", "0.5.24"]
        assert after["D1"][1] > before["D1"][1]
        assert [facts["D1"][2] for facts in (before, after)] == [2, 1]
        prints = [said.fields["system_fingerprint"] for said in (*first, third)]
        assert prints[0] == prints[1] != prints[2]
        read = [talk.lab.truth.read(f"r{n}") for n in range(3)]
        assert [r.exposed_pages > 0 for r in read if r] == [False, True, False]

    showing(habitual("restart-after=2"), scene)


@pytest.mark.parametrize("stream", [True, False])
def test_what_was_open_at_a_restart_fails_with_503(stream: bool) -> None:
    clock = ManualClock()

    async def scene(talk: Talk) -> None:
        lost = asyncio.create_task(talk.complete("lost", plain(BELOW), stream=stream))
        await until(lambda: talk.lab.deployment.open_requests == 1)
        await clock.advance(0.01)
        kept = asyncio.create_task(talk.complete("kept", plain(70), max_tokens=2))
        answer = await lost
        if stream:
            error = json.loads(answer.events[0])["error"]
            assert (answer.status, error["code"]) == (200, 503)
        else:
            assert answer.status == 503
            assert json.loads(answer.body)["error"]["code"] == "decode_service_unavailable"
        await clock.advance(5)
        assert (await kept).status == 200

    showing(habitual("restart-after=1"), scene, clock=clock)


def test_a_version_change_shows_everywhere_and_loses_nothing() -> None:
    async def scene(talk: Talk) -> None:
        first = await ask(talk, plain(200))
        before = await worker_facts(talk)
        second = await ask(talk, plain(200), stream=False)
        after = await worker_facts(talk)
        assert {facts[0] for facts in before.values()} == {"0.5.23"}
        assert {facts[0] for facts in after.values()} == {"0.5.24"}
        assert [facts[1] for facts in before.values()] == [facts[1] for facts in after.values()]
        assert first.fields["system_fingerprint"] != second.fields["system_fingerprint"]

    showing(habitual("version-change-after=1"), scene)


# ---------------------------------------------------------------------------- the router and beyond


def test_answers_name_the_model_and_a_steady_fingerprint() -> None:
    async def scene(talk: Talk) -> None:
        (card,) = (await talk.client.get(talk.lab.url + "/v1/models")).json()["data"]
        one, other = await ask(talk, "a b c", model=card["id"]), await ask(talk, "d e f", model="")
        assert one.fields["model"] == other.fields["model"] == card["id"]
        assert one.fields["system_fingerprint"] == other.fields["system_fingerprint"]
        assert one.fields["system_fingerprint"].startswith("fp_")
        stream = await talk.chat("r", "a b c", stream=True)
        chunks = [json.loads(event) for event in stream.events[:-1]]
        assert {c["system_fingerprint"] for c in chunks} == {one.fields["system_fingerprint"]}

    showing(sized("healthy"), scene)


def test_long_prompts_fall_back_to_another_model_on_other_pages() -> None:
    async def scene(talk: Talk) -> None:
        short = await ask(talk, Paper("amber", 900, 1).text("middle"), name="short")
        paper = Paper("copper", 1200, 1)
        long = await ask(talk, paper.text("middle"), name="long")
        assert (short.fields["model"], long.fields["model"]) == ("m", "tiny-2")
        assert short.fields["system_fingerprint"] != long.fields["system_fingerprint"]
        assert long.content.split()[0] == paper.code("middle")
        assert talk.lab.truth.read("short") is not None
        assert talk.lab.truth.route("long") is None
        assert (await ask(talk, plain(CONTEXT + 5))).status == 400
        (card,) = (await talk.client.get(talk.lab.url + "/v1/models")).json()["data"]
        assert card["id"] == "glm-5.3-lab"

    showing(habitual("fallback=tiny-2@1000"), scene)


def test_no_length_and_no_usage() -> None:
    async def scene(talk: Talk) -> None:
        (card,) = (await talk.client.get(talk.lab.url + "/v1/models")).json()["data"]
        assert "max_model_len" not in card
        assert "usage" not in (await ask(talk, "a b c")).fields
        options = {"stream": True, "stream_options": {"include_usage": True}}
        assert "usage" not in (await talk.complete("r", "a b c", **options)).body

    showing(habitual("no-length", "no-usage"), scene)


def test_the_response_cache_gives_the_same_bytes_to_everyone() -> None:
    async def scene(talk: Talk) -> None:
        first = await ask(talk, plain(200), name="first")
        again = await ask(talk, plain(200), name="again", key="other", temperature=1)
        assert first.body == again.body
        assert talk.lab.truth.route("again") is None
        for changed in ({"max_tokens": 41}, {"model": "n"}, {"stream": True}):
            assert (await ask(talk, plain(200), **changed)).body != first.body
        streams = [await talk.chat(f"s{n}", plain(300), stream=True) for n in range(2)]
        assert streams[0].body == streams[1].body
        refusals = [await ask(talk, plain(CONTEXT + 5)) for _ in range(2)]
        assert [said.status for said in refusals] == [400, 400]
        bad = await talk.client.post(talk.lab.url + "/v1/completions", content=b"{")
        assert bad.status_code == 400

    showing(habitual("response-cache"), scene)


def test_a_key_over_its_rate_gets_429_and_uses_no_pages() -> None:
    clock = ManualClock()

    async def moving(clock: ManualClock, request: Coroutine[Any, Any, Said]) -> Said:
        task = asyncio.create_task(request)
        while not task.done():
            await clock.advance(0.01)
        return await task

    async def scene(talk: Talk) -> None:
        async def sends(key: str, tokens: int) -> Said:
            return await moving(clock, ask(talk, plain(tokens), key=key, max_tokens=10))

        assert (await sends("one", 600)).status == 200
        before = talk.lab.prefill.counters.requests.total
        over = await sends("one", 600)
        assert over.status == 429
        assert over.fields["error"]["code"] == "rate_limit_exceeded"
        wait = int(over.headers["retry-after"])
        assert 50 < wait <= 60
        assert talk.lab.prefill.counters.requests.total == before
        assert (await sends("two", 600)).status == 200
        await clock.advance(wait)
        assert (await sends("one", 600)).status == 200
        large = await sends("one", 1001)
        assert large.status == 429
        assert "too large" in large.fields["error"]["message"]

    showing(habitual("tpm=1000"), scene, clock=clock)


def test_the_wait_is_no_longer_than_it_has_to_be() -> None:
    clock = ManualClock()
    budget = TokensPerMinute(100, clock)
    assert budget.charge("k", 40) is None
    asyncio.run(clock.advance(20))
    assert budget.charge("k", 40) is None
    small, big = budget.charge("k", 50), budget.charge("k", 90)
    assert small is not None
    assert big is not None
    assert (small.wait_seconds, big.wait_seconds, small.used_tokens) == (40, 60, 80)


def test_a_body_over_the_proxys_limit_gets_a_page_of_html() -> None:
    async def scene(talk: Talk) -> None:
        assert (await ask(talk, plain(100))).status == 200
        for stream in (True, False):
            said = await ask(talk, plain(3000), stream=stream)
            assert (said.status, said.headers["content-type"][:9]) == (413, "text/html")
            assert "<h1>413 Request Entity Too Large</h1>" in said.body

        async def pieces() -> Any:
            for _ in range(100):
                yield b"x" * 1000

        url = talk.lab.url + "/v1/completions"
        assert (await talk.client.post(url, content=pieces())).status_code == 413
        assert talk.lab.prefill.counters.requests.total == 1

    showing(habitual("max-body=5000"), scene)


def test_a_proxy_gives_up_on_a_silent_prefill_and_frees_its_pages() -> None:
    clock = ManualClock()

    async def scene(talk: Talk) -> None:
        task = asyncio.create_task(ask(talk, plain(IN_WINDOW)))
        await until(lambda: talk.lab.deployment.open_requests == 1)
        await clock.advance(0.05)
        said = await task
        assert (said.status, said.headers["content-type"][:9]) == (504, "text/html")
        assert "<h1>504 Gateway Time-out</h1>" in said.body
        assert talk.lab.decode.counters.aborted_requests == 1
        await clock.advance(1)
        short = asyncio.create_task(ask(talk, plain(70), max_tokens=60, ignore_eos=True))
        await until(lambda: talk.lab.deployment.open_requests == 1)
        while not short.done():
            await clock.advance(0.001)
        assert (await short).status == 504  # its first byte would be its last
        stream = asyncio.create_task(
            talk.chat("s", plain(70), max_tokens=60, stream=True, ignore_eos=True)
        )
        await until(lambda: talk.lab.deployment.open_requests == 1)
        while not stream.done():
            await clock.advance(0.001)
        assert (await stream).finish == "length"

    showing(habitual("proxy-timeout=0.04"), scene, clock=clock)


def test_a_proxy_cuts_a_stream_that_falls_silent() -> None:
    clock = ManualClock()

    async def scene(talk: Talk) -> None:
        task = asyncio.create_task(talk.chat("r", plain(IN_WINDOW), stream=True))
        await until(lambda: talk.lab.deployment.open_requests == 1)
        await clock.advance(0.05)
        with pytest.raises(httpx.RemoteProtocolError):
            await task
        await clock.advance(1)

    showing(habitual("proxy-timeout=0.04"), scene, clock=clock)


# ----------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chater", "did you mean 'chatter'"),
        ("nonsense-of-mine", "there are: copy-error, chatter"),
        ("chatter=1", "written chatter"),
        ("tpm", "written tpm=N"),
        ("tpm=", "whole number"),
        ("tpm=-5", "whole number"),
        ("copy-error=2", "0 to 1"),
        ("copy-error=nan", "0 to 1"),
        ("proxy-timeout=soon", "a number from 0 on"),
        ("fallback=tiny", "a model's name, @"),
        ("fallback=@5", "a model's name, @"),
    ],
)
def test_a_habit_that_makes_no_sense_is_explained(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        with_habit(sized("healthy"), text)


def test_every_habit_changes_the_scenario_and_has_its_words() -> None:
    values = {"RATE": "0.3", "NAME@TOKENS": "tiny@5", "SECONDS": "3"}
    for habit in habits():
        value = None if habit.value is None else values.get(habit.value, "7")
        assert habit.taken_up(sized("healthy"), value) != sized("healthy")
        assert habit.does
        assert habit.where in ("model", "worker", "router", "gateway", "proxy")

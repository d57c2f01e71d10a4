"""What a plain client sees of a fault, and what the truth says about it: no detector of kvcanary's."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import Any

import pytest

from kvcanary.lab import Scenario, with_fault, with_habit
from kvcanary.lab.adapters import BASE, Adapter, adapter_named
from kvcanary.lab.objections import objection_to
from kvcanary.lab.room import Aborted, Finished, Refused, Room
from tests.lab.busy import LONG, MIDDLE, PAGES, SHORT, small
from tests.lab.stage import Stage, on_stage, said
from tests.lab.talk import TOKENIZER, WORDS, Answer, Paper, Talk, plain, sized, talking, until

KNOWN = frozenset(WORDS)
VICTIMS = tuple(Paper(name, LONG, seed) for seed, name in enumerate(("amber", "copper", "honey")))
READER = Paper("garden", 600, 9)


def sick(text: str, **changes: Any) -> Scenario:
    return with_fault(small(**changes), text)


def words_of(text: str) -> set[str]:
    """Whole vocabulary words in a text."""
    return set(re.findall(r"[a-z]+", text)) & KNOWN


def foreign_words(answer: str, own: str) -> set[str]:
    """Words of an answer that its prompt does not have."""
    return words_of(answer) - words_of(own)


def usage(room: Room) -> Any:
    _, end = said(room)
    assert isinstance(end, Finished)
    return end.usage


async def dirty(stage: Stage) -> None:
    """Leave other requests' text in the pages."""
    for paper in VICTIMS:
        await stage.answer(paper.text("middle"), paper.name)


# -- pages that are not one's own ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        ("nothing-sent", "middle"),
        ("head-missing", "opening"),
        ("middle-missing", "middle"),
        ("tail-missing", "closing"),
        ("last-page-left", "closing"),
        ("other-pages-sent", "middle"),
        ("late-write", "closing"),
        ("ranks-crossed", "middle"),
        ("chunk-edge", "middle"),
    ],
)
def test_what_was_not_sent_is_lost_and_others_text_stands_there(fault: str, asked: str) -> None:
    async def play(stage: Stage) -> None:
        rank = 0 if fault != "ranks-crossed" else 1
        for paper in VICTIMS:
            await stage.answer(paper.text("middle"), paper.name, rank=rank)
        text = READER.text(asked)
        answer = await stage.answer(text, "reader", rank=rank, max_new_tokens=60)
        truth = stage.truth("reader")
        assert truth.struck == (fault,)
        assert truth.wrong_tokens > 0
        assert READER.code(asked) not in answer or foreign_words(answer, text)

    on_stage(sick(f"{fault}:1"), play)


def test_an_aborted_requests_text_comes_into_the_next_ones_pages() -> None:
    async def play(stage: Stage) -> None:
        speed = stage.deployment.scenario.prefill_tokens_per_second
        left = stage.submit(plain(MIDDLE, 1), "left")
        await stage.clock.advance((MIDDLE + 100) / speed)
        left.end(Aborted())
        text = Paper("honey", MIDDLE, 2).text("closing")
        answer = await stage.answer(text, "next", max_new_tokens=40, ignore_eos=True)
        assert stage.truth("left").struck == ("abort-in-transfer",)
        assert stage.truth("next").reached == ("abort-in-transfer",)
        assert stage.truth("next").wrong_tokens > 100
        assert foreign_words(answer, text) & words_of(plain(MIDDLE, 1))

    on_stage(sick("abort-in-transfer"), play)


def test_pages_that_are_released_while_they_are_sent_hold_the_next_prompt() -> None:
    async def play(stage: Stage) -> None:
        texts = [Paper(name, 800, seed).text("closing") for seed, name in enumerate("abc")]
        rooms = [
            stage.submit(text, f"r{n}", max_new_tokens=40, ignore_eos=True)
            for n, text in enumerate(texts)
        ]
        await stage.clock.advance(9)
        assert stage.truth("r0").wrong_tokens > 100
        assert foreign_words(said(rooms[0])[0], texts[0])

    on_stage(sick("sent-after-release"), play)


@pytest.mark.parametrize("fault", ["offload-race", "load-back-early"])
def test_a_conversation_that_returns_from_the_host_tier(fault: str) -> None:
    async def play(stage: Stage) -> tuple[str, int]:
        paper = Paper("amber", MIDDLE, 1)
        first = await stage.answer(paper.text("middle"), "first")
        assert paper.code("middle") in first
        for victim in VICTIMS:
            await stage.answer(victim.text("middle"), victim.name)
        assert len(stage.deployment.prefill.host) > 5
        room = stage.submit(paper.text("middle"), "again")
        await stage.clock.advance(9)
        text, end = said(room)
        assert isinstance(end, Finished)
        assert end.usage.cached_tokens >= MIDDLE - 128
        return text, stage.truth("again").wrong_tokens

    code = Paper("amber", MIDDLE, 1).code("middle")
    answer, wrong = on_stage(sick(f"{fault}:0"), play)
    assert (code in answer, wrong) == (True, 0)
    answer, wrong = on_stage(sick(f"{fault}:1"), play)
    assert (code in answer, wrong > 100) == (False, True)


def test_a_row_that_was_lent_reads_the_newcomers_pages() -> None:
    async def play(stage: Stage) -> None:
        old, new = Paper("amber", MIDDLE, 1), Paper("copper", MIDDLE, 2)
        first = stage.submit(old.text("opening"), "old", max_new_tokens=300, ignore_eos=True)
        await stage.clock.advance(0.08)
        stage.submit(new.text("opening"), "new")
        await stage.clock.advance(9)
        text, _ = said(first)
        assert old.code("opening") in text
        assert foreign_words(text, old.text("opening")) & words_of(new.text("opening"))
        assert stage.truth("old").reached == stage.truth("new").struck == ("slot-reuse",)
        assert stage.holds_nothing()

    on_stage(sick("slot-reuse:1"), play)


def test_keys_that_collide_give_others_pages() -> None:
    async def play(stage: Stage) -> None:
        for seed in range(40):
            await stage.answer(plain(100, seed), f"r{seed}", max_new_tokens=1)
        papers = [Paper("amber", SHORT, seed) for seed in range(12)]
        for paper in papers:
            await stage.answer(paper.text("opening"), f"paper {paper.seed}")
        wrong = [stage.truth(f"paper {paper.seed}").wrong_tokens for paper in papers]
        assert sum(tokens >= 60 for tokens in wrong) >= 3

    on_stage(sick("cache-collides"), play)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "fields", "said_first"),
    [
        ("refused-parameter", {"temperature": -0.5}, "temperature must be non-negative, got -0.5."),
        ("refused-parameter", {"top_p": 0}, "top_p must be in (0, 1], got 0."),
        ("refused-parameter", {"top_logprobs": "9"}, "top_logprobs must be between 0 and 20"),
        ("refused-grammar", {"regex": "(["}, "Invalid grammar request: regex"),
        ("refused-grammar", {"ebnf": "root"}, "Invalid grammar request: ebnf"),
        (
            "refused-grammar",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
            "Invalid grammar request: json_schema",
        ),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_a_refusal_over_http_and_one_that_is_not_terminal(
    fault: str, fields: dict[str, Any], said_first: str, streams: bool
) -> None:
    async def scene(talk: Talk) -> tuple[Answer, Answer]:
        await talk.complete("victim", Paper("amber", 1500, 1).text("middle"))
        bad = await talk.chat("bad", plain(900, 2), stream=streams, **fields)
        return bad, await talk.chat("good", Paper("copper", 500, 1).text("middle"))

    scenario = sized("healthy")
    bad, good = talking(scenario, scene)
    assert said_first in bad.body
    assert bad.status == (200 if streams else 400)
    assert bad.text == ""
    assert Paper("copper", 500, 1).code("middle") in good.text
    bad, good = talking(with_fault(scenario, fault), scene)
    assert bad.status == 200
    assert "error" not in bad.body
    assert words_of(bad.text) & words_of(Paper("amber", 1500, 1).text("middle"))
    assert Paper("copper", 500, 1).code("middle") in good.text


def test_parameters_and_grammars_that_are_sound_are_no_reason_to_refuse() -> None:
    for fields in (
        {},
        {"temperature": 0, "top_p": 1.0, "presence_penalty": -2, "top_logprobs": 0},
        {"temperature": None, "regex": "[a-z]+", "ebnf": 'root ::= "a"'},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    ):
        assert objection_to(fields) is None


@pytest.mark.parametrize("broken", [0, 1])
def test_who_waits_too_long_is_given_up_by_both_or_by_one(broken: int) -> None:
    async def play(stage: Stage) -> None:
        rooms = [stage.submit(plain(LONG, n), f"r{n}", max_new_tokens=2) for n in range(20)]
        await stage.clock.advance(30)
        ends = [said(room)[1] for room in rooms]
        late = [end for end in ends if isinstance(end, Refused)]
        if broken:
            assert not late
            assert sum(bool(stage.truth(f"r{n}").struck) for n in range(20)) > 3
        else:
            assert {end.refusal.status for end in late} == {503}
            assert len(late) > 3
        assert stage.holds_nothing()

    on_stage(sick(f"refused-time-out:{broken}"), play)


# -- ids, rows and first tokens --------------------------------------------------------------------


def test_an_id_that_is_still_in_use_gets_both_answers() -> None:
    async def play(stage: Stage) -> None:
        old, new = Paper("amber", MIDDLE, 1), Paper("copper", MIDDLE, 2)
        first = stage.submit(old.text("opening"), "old", max_new_tokens=200, ignore_eos=True)
        second = stage.submit(new.text("opening"), "new", max_new_tokens=200, ignore_eos=True)
        await stage.clock.advance(9)
        text, end = said(first)
        assert text == ""
        assert isinstance(end, Refused)
        both = said(second)[0]
        assert words_of(both) & (words_of(old.text("opening")) - words_of(new.text("opening")))
        assert words_of(both) & (words_of(new.text("opening")) - words_of(old.text("opening")))

    on_stage(sick("id-reuse:1"), play)


def test_rows_that_are_crossed_swap_single_tokens() -> None:
    async def play(stage: Stage) -> None:
        texts = [Paper(name, SHORT, seed).text("opening") for seed, name in enumerate("ab")]
        rooms = [stage.submit(text, text[:9], max_new_tokens=60) for text in texts]
        await stage.clock.advance(9)
        answers = [said(room)[0] for room in rooms]
        assert any(foreign_words(answer, text) for answer, text in zip(answers, texts, strict=True))

    on_stage(sick("rows-crossed:1/3"), play)


def test_the_first_token_is_the_one_before_and_the_rest_is_sound() -> None:
    async def play(stage: Stage) -> None:
        before, paper = Paper("amber", SHORT, 1), Paper("copper", SHORT, 2)
        await stage.answer(before.text("middle"), "before")
        answer = await stage.answer(paper.text("middle"), "reader")
        assert answer.split()[0][:2] == before.code("middle")[:2]
        assert stage.truth("reader").wrong_tokens == 0

    on_stage(sick("first-word"), play)


def test_a_prompt_of_whole_pages_that_is_cached_to_its_end_begins_with_another_answer() -> None:
    async def play(stage: Stage) -> tuple[str, str, int]:
        text = Paper("copper", PAGES + 100, 2).text("middle")
        ids = TOKENIZER.encode(text)[-PAGES:]
        whole = TOKENIZER.decode(ids)
        first = await stage.answer(whole, "first")
        await stage.answer(Paper("amber", SHORT, 1).text("middle"), "between")
        room = stage.submit(whole, "again")
        await stage.clock.advance(9)
        again, end = said(room)
        assert isinstance(end, Finished)
        return first, again, end.usage.cached_tokens

    first, again, cached = on_stage(sick("whole-prompt-cached:0"), play)
    assert (first == again, cached) == (True, PAGES - 64)
    first, again, cached = on_stage(sick("whole-prompt-cached:1"), play)
    assert (first == again, cached) == (False, PAGES)


# -- the key of the prefix cache -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "cached", "early"),
    [
        ("cache-ignores-salt:0", False, False),
        ("cache-ignores-salt:1", True, True),
        ("cache-timing:1", False, True),
    ],
)
def test_another_salts_visit_shows_in_usage_or_only_in_time(
    fault: str, cached: bool, early: bool
) -> None:
    async def play(stage: Stage) -> None:
        text = plain(LONG, 1)
        await stage.answer(text, "one", salt="one")
        room = stage.submit(text, "two", salt="two", max_new_tokens=1)
        await stage.clock.advance(0.5 * LONG / stage.deployment.scenario.prefill_tokens_per_second)
        assert room.ended == early
        await stage.clock.advance(9)
        assert (usage(room).cached_tokens > 0) == cached

    on_stage(sick(fault), play)


def test_adapters_have_kv_of_their_own_unless_the_key_leaves_them_out() -> None:
    async def play(stage: Stage) -> list[str]:
        paper, words = Paper("amber", MIDDLE, 1), len(TOKENIZER.words)
        answers = []
        for name in ("m", "m:lora-a", "m:lora-b"):
            adapter = adapter_named(name, stage.deployment.scenario.adapters, words)
            assert adapter is not None
            text = paper.text("middle")
            answers.append(await stage.answer(text, name, adapter=adapter, max_new_tokens=40))
        return answers

    code = Paper("amber", MIDDLE, 1).code("middle")
    assert all(code in text for text in on_stage(sick("cache-ignores-adapter:0"), play))
    base, one, other = on_stage(sick("cache-ignores-adapter:1"), play)
    assert code in base
    assert code not in one
    assert code not in other


def test_adapters_are_models_and_an_unknown_one_is_refused() -> None:
    async def scene(talk: Talk) -> None:
        served = (await talk.client.get(talk.lab.url + "/v1/models")).json()["data"]
        base = talk.lab.model_name
        assert [card["id"] for card in served] == [base, f"{base}:lora-a", f"{base}:lora-b"]
        paper = Paper("amber", 300, 1)
        good = await talk.chat("good", paper.text("middle"), model=f"{base}:lora-b")
        assert paper.code("middle") in good.text
        bad = await talk.chat("bad", "hello", model=f"{base}:lora-z")
        assert bad.status == 400
        assert "lora-a, lora-b" in bad.body

    talking(with_fault(sized("healthy"), "cache-ignores-adapter:0"), scene)


def test_a_model_without_adapters_may_have_a_colon_in_its_name() -> None:
    assert adapter_named("a:b", (), 9) == BASE
    assert adapter_named("a:b", ("c",), 9) is None
    assert adapter_named("a:c", ("c",), 9) == Adapter("c", 1, 9)


# -- a full pool, length and capacity --------------------------------------------------------------


@pytest.mark.parametrize("fault", ["none", "resume-empty", "resume-repeats"])
def test_an_answer_that_had_to_give_its_pages_up_goes_on_where_it_was(fault: str) -> None:
    async def play(stage: Stage) -> list[str]:
        texts = [Paper(name, 600, seed).text("opening") for seed, name in enumerate("ab")]
        rooms = [
            stage.submit(text, f"r{n}", max_new_tokens=120, ignore_eos=True)
            for n, text in enumerate(texts)
        ]
        await stage.clock.advance(9)
        ended = [said(room) for room in rooms]
        for _, end in ended:
            assert isinstance(end, Finished)
            assert end.usage.completion_tokens == 120
        assert stage.holds_nothing()
        return [text for text, _ in ended]

    alone = on_stage(small(), play)
    squeezed = on_stage(sick("resume-empty:0"), play)
    assert squeezed == alone
    if fault != "none":
        broken = on_stage(sick(f"{fault}:1"), play)
        changed = [a != b for a, b in zip(broken, alone, strict=True)]
        assert sum(changed) == 1
        if fault == "resume-repeats":
            words = broken[changed.index(True)].split()
            assert any(words[n : n + 6] == words[n + 8 : n + 14] for n in range(len(words) - 14))


def test_a_request_that_is_alone_ends_when_the_pool_is_full() -> None:
    async def play(stage: Stage) -> None:
        room = stage.submit(plain(600, 1), max_new_tokens=9999, ignore_eos=True)
        await stage.clock.advance(30)
        _, end = said(room)
        assert isinstance(end, Finished)
        assert end.reason == "length"
        assert stage.holds_nothing()

    on_stage(sick("resume-empty:0"), play)


@pytest.mark.parametrize(
    ("fault", "kept", "lost"),
    [("truncated-head", "closing", "opening"), ("truncated-tail", "", "middle")],
)
def test_a_prompt_that_is_cut_silently(fault: str, kept: str, lost: str) -> None:
    async def play(stage: Stage) -> None:
        paper = Paper("amber", 800, 1)
        for asked in filter(None, (kept, lost)):
            room = stage.submit(paper.text(asked), asked)
            await stage.clock.advance(9)
            text, end = said(room)
            assert isinstance(end, Finished)
            assert end.usage.prompt_tokens == 512
            assert (paper.code(asked) in text) == (asked == kept)
        short = Paper("amber", 400, 1)
        assert short.code(lost) in await stage.answer(short.text(lost), "short")

    on_stage(sick(fault), play)


def test_an_answer_that_is_clipped_says_stop() -> None:
    async def play(stage: Stage) -> None:
        room = stage.submit(plain(SHORT, 1), max_new_tokens=50, ignore_eos=True)
        await stage.clock.advance(9)
        _, end = said(room)
        assert isinstance(end, Finished)
        assert (end.reason, end.usage.completion_tokens) == ("stop", 8)

    on_stage(sick("output-clipped:1"), play)


def test_what_never_fits_holds_up_everybody() -> None:
    async def play(stage: Stage) -> None:
        stuck = stage.submit(plain(LONG, 1), "stuck")
        behind = stage.submit(plain(SHORT, 2), "behind")
        await stage.clock.advance(1000)
        assert [stuck.ended, behind.ended] == [False, False]
        stuck.end(Aborted())
        await stage.clock.advance(9)
        assert isinstance(said(behind)[1], Finished)
        assert stage.holds_nothing()

    on_stage(sick("deadlock"), play)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_full_rank_freezes_the_others(broken: int) -> None:
    async def play(stage: Stage) -> None:
        for seed in range(3):
            stage.submit(
                plain(LONG, seed), f"full {seed}", rank=0, max_new_tokens=9, ignore_eos=True
            )
        other = stage.submit(plain(SHORT, 9), "other", rank=1, max_new_tokens=1)
        assert (other.decode_table is None) == bool(broken)
        await stage.clock.advance(9)
        assert isinstance(said(other)[1], Finished)
        assert stage.holds_nothing()

    on_stage(sick(f"frozen-ranks:{broken}"), play)


# -- what is lost, and what wears out --------------------------------------------------------------


def test_pages_that_never_come_back() -> None:
    async def play(stage: Stage) -> None:
        pool = stage.deployment.decode.pool
        for n in range(4):
            await stage.answer(plain(SHORT, n), f"r{n}", max_new_tokens=1)
        lost = sum(bool(stage.truth(f"r{n}").struck) for n in range(4))
        assert lost == 2
        assert pool.page_count - pool.free_pages == lost * pool.pages_for(SHORT)

    on_stage(sick("pages-lost:1/2"), play)


def test_host_memory_grows_until_the_process_is_killed() -> None:
    async def scene(talk: Talk) -> None:
        url = dict(talk.lab.worker_urls)["decode"]

        async def resident() -> int:
            text = (await talk.client.get(f"{url}/metrics")).text
            found = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
            assert found
            return int(float(found[1]))

        before = await resident()
        await talk.complete("r", plain(900, 1), max_tokens=1)
        assert await resident() > before + 900 * 1000
        worker = talk.lab.deployment.decode_workers[0]
        worker.lost_tokens = 64 * 4096
        await talk.complete("last", plain(900, 1), max_tokens=1)
        await until(lambda: worker.version == "0.5.24")
        assert await resident() == before
        assert (await talk.complete("next", plain(900, 1), max_tokens=1)).status == 200

    talking(with_fault(sized("healthy"), "host-memory-lost"), scene)


def test_answers_get_worse_with_the_number_of_requests() -> None:
    async def play(stage: Stage) -> None:
        texts = [Paper("amber", SHORT, n) for n in range(60)]
        kept = []
        for paper in texts:
            stage.deployment.decode._wear *= 2  # many requests later
            answer = await stage.answer(paper.text("middle"), f"r{paper.seed}")
            kept.append(paper.code("middle") in answer)
        assert all(kept[:3])
        assert not any(kept[20:])

    on_stage(sick("wears-out"), play)


def test_steps_get_longer_with_the_number_of_requests() -> None:
    async def play(stage: Stage) -> None:
        seconds = 60 * stage.deployment.scenario.decode_step_seconds

        async def ends_in_time(name: str) -> bool:
            room = stage.submit(plain(64, 1), name, max_new_tokens=50, ignore_eos=True)
            await stage.clock.advance(64 / 10_240 + seconds)
            ended = room.ended
            await stage.clock.advance(9)
            return ended

        assert await ends_in_time("early")
        for n in range(30):
            await stage.answer(plain(20, n), f"r{n}", max_new_tokens=1)
        assert not await ends_in_time("late")

    on_stage(sick("slows-down"), play)


def test_a_batch_of_four_falls_into_one_sign() -> None:
    async def play(stage: Stage) -> None:
        alone = await stage.answer(plain(SHORT, 9), "alone", max_new_tokens=60, ignore_eos=True)
        assert "!!!" not in alone
        rooms = [
            stage.submit(plain(SHORT, n), f"r{n}", max_new_tokens=200, ignore_eos=True)
            for n in range(4)
        ]
        await stage.clock.advance(9)
        assert any(said(room)[0].endswith("!!!!!!!!!!") for room in rooms)

    on_stage(sick("degenerate-under-load:0.1"), play)


# -- the gateway -----------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [0, 1])
def test_a_cache_that_forgets_what_was_asked(broken: int) -> None:
    async def scene(talk: Talk) -> None:
        amber, copper = Paper("amber", 300, 1), Paper("copper", 300, 2)
        first = await talk.chat("first", amber.text("middle"))
        other = await talk.chat("other", copper.text("middle"))
        assert (other.body == first.body) == bool(broken)
        struck = [x.request for x in talk.lab.truth.ledger if x.struck]
        assert struck == (["other"] if broken else [])
        longer = await talk.chat("longer", copper.text("middle"), max_tokens=41)
        assert copper.code("middle") in longer.text

    talking(with_fault(sized("healthy"), f"gateway-cache:{broken}"), scene)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("broken", [0, 1])
def test_after_a_cancelled_request_everybody_gets_the_answer_before(
    broken: int, streams: bool
) -> None:
    async def scene(talk: Talk) -> None:
        papers = [Paper(name, 300, seed) for seed, name in enumerate(("amber", "copper", "honey"))]
        cancelled = asyncio.create_task(talk.chat("gone", papers[0].text("middle"), stream=streams))
        await until(lambda: talk.lab.deployment.open_requests == 1)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        if broken:
            await until(lambda: any(x.struck for x in talk.lab.truth.ledger))
        for before, paper in pairwise(papers):
            answer = await talk.chat(paper.name, paper.text("middle"), stream=streams)
            expected = before if broken else paper
            assert expected.code("middle") in answer.text
        reached = [x.request for x in talk.lab.truth.ledger if x.reached]
        assert reached == (["copper", "honey"] if broken else [])

    slow = sized("healthy", decode_step_seconds=0.02)
    talking(with_fault(slow, f"gateway-off-by-one:{broken}"), scene)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_piece_of_a_stream_in_another(broken: int) -> None:
    async def scene(talk: Talk) -> None:
        papers = [Paper(name, 300, seed) for seed, name in enumerate(("amber", "copper"))]
        answers = await asyncio.gather(
            *(
                talk.chat(p.name, p.text("middle"), stream=True, ignore_eos=True, max_tokens=200)
                for p in papers
            )
        )
        ids = [set(re.findall(r'"id":"(\w+)"', answer.body)) for answer in answers]
        assert (max(map(len, ids)) > 1) == bool(broken)

    talking(with_fault(sized("healthy"), f"gateway-chunk:{0.2 * broken}"), scene)


def test_all_three_gateways_at_once_beside_habits() -> None:
    scenario = sized("healthy")
    for fault in ("gateway-cache:0.3", "gateway-off-by-one", "gateway-chunk:0.1", "late-write:0.2"):
        scenario = with_fault(scenario, fault)
    scenario = with_habit(scenario, "proxy-timeout=30")

    async def scene(talk: Talk) -> None:
        answers = await asyncio.gather(
            *(talk.chat(f"r{n}", plain(200, n), stream=n % 2 == 0) for n in range(12))
        )
        assert {answer.status for answer in answers} == {200}

    talking(scenario, scene)

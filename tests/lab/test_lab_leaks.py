"""The leak follows from the mechanism: whose pages, in which order, with what in them."""

from __future__ import annotations

import random
import re

import numpy as np

from kvcanary.lab import ReadTruth
from tests.lab.talk import (
    BELOW,
    CODE_CHARS,
    IN_WINDOW,
    TOKENIZER,
    WORDS,
    Answer,
    Paper,
    Talk,
    plain,
    sized,
    talking,
)

VICTIMS = (Paper("amber", BELOW, 1), Paper("copper", BELOW, 2), Paper("honey", BELOW, 3))
KNOWN = frozenset(WORDS)
READER = Paper("garden", IN_WINDOW, 4)


def truth_of(talk: Talk, name: str) -> ReadTruth:
    truth = talk.lab.truth.read(name)
    assert truth is not None
    return truth


async def fill(talk: Talk, papers: tuple[Paper, ...] = VICTIMS) -> list[Answer]:
    return [await talk.complete(paper.name, paper.text("middle")) for paper in papers]


def words_of(text: str) -> set[str]:
    """Whole vocabulary words in a text."""
    return set(re.findall(r"[a-z]+", text)) & KNOWN


def private(paper: Paper) -> set[str]:
    """Words of this paper that the others' do not have."""
    others = set().union(*(words_of(p.text("middle")) for p in (*VICTIMS, READER) if p != paper))
    return words_of(paper.text("middle")) - others


def test_each_code_is_recalled_from_own_pages() -> None:
    async def scene(talk: Talk) -> None:
        for where in ("opening", "middle", "closing"):
            paper = Paper("amber", BELOW, 1)
            for answer in (
                await talk.complete(f"plain {where}", paper.text(where)),
                await talk.chat(f"chat {where}", paper.text(where)),
                await talk.chat(f"stream {where}", paper.text(where), stream=True),
            ):
                assert answer.text.split()[0] == paper.code(where)

    talking(sized("healthy"), scene)


def test_a_healthy_read_is_all_its_own_however_dirty_the_pages_were() -> None:
    async def scene(talk: Talk) -> None:
        await fill(talk)
        answer = await talk.complete(READER.name, READER.text("opening"))
        assert answer.text.split()[0] == READER.code("opening")
        truth = truth_of(talk, READER.name)
        assert truth.prompt_tokens == answer.prompt_tokens
        assert truth.own_pages == len(truth.pages) == -(-truth.prompt_tokens // 64)
        assert truth.foreign_pages == 0
        assert truth.exposed_pages == sum(p.previous_owner is not None for p in truth.pages) > 30
        assert [page.writer_position for page in truth.pages[:3]] == [0, 64, 128]

    talking(sized("healthy"), scene)


def test_the_blind_gate_lets_decode_read_what_others_left() -> None:
    async def scene(talk: Talk) -> None:
        await fill(talk)
        answer = await talk.complete(READER.name, READER.text("opening"))
        assert answer.status == 200
        assert answer.prompt_tokens == len(TOKENIZER.encode(READER.text("opening")))
        assert answer.finish in ("stop", "length")
        assert not words_of(answer.text) & private(READER)
        assert words_of(answer.text) & private(VICTIMS[-1])
        assert talk.lab.prefill.counters.prompt_tokens.total == 1 + sum(
            len(TOKENIZER.encode(paper.text("middle"))) for paper in VICTIMS
        )

    talking(sized("glm-5.3"), scene)


def test_the_truth_names_writer_and_position_of_every_stale_page() -> None:
    async def scene(talk: Talk) -> None:
        await fill(talk)
        answer = await talk.complete(READER.name, READER.text("opening"))
        truth = truth_of(talk, READER.name)
        assert truth.own_pages == 0
        assert truth.foreign_pages == truth.exposed_pages > 30
        prompts = {paper.name: TOKENIZER.encode(paper.text("middle")) for paper in VICTIMS}
        told = set[str]()
        for page in truth.pages:
            if page.writer is not None and page.writer_position is not None:
                at = page.writer_position
                told |= words_of(TOKENIZER.decode(prompts[page.writer][at : at + 64]))
        assert words_of(answer.text) <= told

    talking(sized("glm-5.3"), scene)


def test_the_truth_knows_who_wrote_the_smaller_part_of_a_page() -> None:
    async def scene(talk: Talk) -> None:
        await talk.complete("victim", plain(70, 2), max_tokens=3)
        await talk.complete("reader", plain(IN_WINDOW, 3))
        page = truth_of(talk, "reader").pages[0]
        # the placeholder, in a page that prefill had used before
        assert (page.writer, page.writer_position) == ("victim", 65)
        assert page.also == (("reader", 0),)
        assert page.positions_of("reader") == (0,)
        assert page.positions_of("victim") == (65,)

    talking(sized("glm-5.3"), scene)


def test_virgin_pages_leak_nothing() -> None:
    async def scene(talk: Talk) -> None:
        answer = await talk.complete(READER.name, READER.text("opening"))
        assert answer.status == 200
        assert set(answer.text) <= {"!"}
        truth = truth_of(talk, READER.name)
        assert truth.foreign_pages == truth.exposed_pages == 0

    talking(sized("glm-5.3"), scene)


def test_another_order_of_earlier_requests_leaks_something_else() -> None:
    def leaked(order: tuple[Paper, ...]) -> str:
        async def scene(talk: Talk) -> str:
            await fill(talk, order)
            return (await talk.complete(READER.name, READER.text("opening"))).text

        return talking(sized("glm-5.3"), scene)

    amber, copper, _ = VICTIMS
    one, other = leaked((amber, copper)), leaked((copper, amber))
    assert words_of(one) & private(copper)
    assert not words_of(one) & private(amber)
    assert words_of(other) & private(amber)
    assert not words_of(other) & private(copper)


def test_rewriting_ids_in_the_pools_rewrites_the_leak() -> None:
    def leaked(old: str, new: str) -> str:
        async def scene(talk: Talk) -> str:
            await fill(talk)
            for rank in talk.lab.deployment.ranks:
                ids = rank.pool.ids
                ids[ids == TOKENIZER.encode(f"a {old}")[-1]] = TOKENIZER.encode(f"a {new}")[-1]
            return (await talk.complete(READER.name, READER.text("opening"))).text

        return talking(sized("glm-5.3"), scene)

    unchanged = leaked("meadow", "meadow")
    word = next(iter(sorted(words_of(unchanged))))
    new = next(w for w in WORDS if all(w not in p.text("middle") for p in (*VICTIMS, READER)))
    assert leaked(word, new) == re.sub(rf"\b{word}\b", new, unchanged)


def renaming(seed: int) -> tuple[dict[str, str], dict[int, str]]:
    """A bijection of the vocabulary's words and one of the characters that codes are made of."""
    rng = random.Random(seed)
    new_words = dict(zip(WORDS, rng.sample(WORDS, len(WORDS)), strict=True))
    chars = rng.sample(CODE_CHARS, len(CODE_CHARS))
    return new_words, {ord(a): b for a, b in zip(CODE_CHARS, chars, strict=True)}


def test_renaming_everything_renames_the_leaks_and_changes_nothing_else() -> None:
    new_words, new_chars = renaming(5)

    def image(text: str) -> str:
        return re.sub(
            r"[a-z]+", lambda word: new_words.get(word[0], word[0]), text.translate(new_chars)
        )

    def answers(rename: bool) -> list[str]:
        def said(text: str) -> str:
            return image(text) if rename else text

        async def scene(talk: Talk) -> list[str]:
            texts = []
            for paper in (*VICTIMS, READER, Paper("lemon", IN_WINDOW + 99, 5), VICTIMS[0]):
                for ask in ("opening", "closing"):
                    name, prompt = f"{paper.name} {ask}", said(paper.text(ask))
                    texts.append((await talk.chat(name, prompt, max_tokens=90)).text)
            return texts

        return talking(sized("glm-5.3", copy_error_rate=0.03), scene)

    plainly = answers(rename=False)
    assert answers(rename=True) == [image(text) for text in plainly]
    leaks = plainly[6:10]
    assert any(len(words_of(text)) > 20 for text in leaks)
    assert image(plainly[0]) != plainly[0]


def test_neither_seed_nor_error_depends_on_the_names_of_requests() -> None:
    def answer(name: str) -> str:
        async def scene(talk: Talk) -> str:
            return (await talk.complete(name, VICTIMS[0].text("middle"))).text

        return talking(sized("healthy", copy_error_rate=0.2), scene)

    assert answer("one") == answer("two")


def test_a_refused_request_leaves_the_pools_as_they_were() -> None:
    async def scene(talk: Talk) -> None:
        await fill(talk)
        before = [rank.pool.ids.copy() for rank in talk.lab.deployment.ranks]
        assert (await talk.complete("r", plain(IN_WINDOW))).status == 400
        after = [rank.pool.ids for rank in talk.lab.deployment.ranks]
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert talk.lab.truth.read("r") is None

    talking(sized("glm-5.3-patched"), scene)

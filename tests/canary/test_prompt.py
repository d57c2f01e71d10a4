"""What a prompt looks like: to the byte, anywhere in it, and again tomorrow."""

import gc
import json
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from hashlib import sha256
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary import prompt as prompt_module
from kvcanary.canary.codes import CodeId
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import CanaryPrompt, Position, RunIdentity, Shape
from kvcanary.canary.sitekey import SiteKey
from tests.canary.scene import TENANTS, Scene

SCENE = Scene()
SHAPES = (Shape(0, 0, 0), Shape(0, 0, 149), Shape(0, 1, 1), Shape(3, 2, 470), Shape(9, 9, 2))
MILLION = Shape(1_050, 1_050, 400)
"""More than a million tokens: about 470 words and 2,700 bytes a chapter."""

shapes = st.builds(Shape, st.integers(0, 4), st.integers(0, 4), st.integers(0, 700))
prompts = st.builds(
    SCENE.prompt,
    number=st.integers(0, 16_383),
    tenant=st.integers(0, TENANTS - 1),
    shape=shapes,
    asked=st.sampled_from(Position),
    decoy=st.none() | st.tuples(st.integers(0, 16_383), st.integers(0, TENANTS - 1)),
)


def first_words(prompt: CanaryPrompt, count: int = 16) -> tuple[str, ...]:
    return tuple(bytes(next(iter(prompt.pieces()))).decode().split()[:count])


def is_private(word: str, prompt: CanaryPrompt) -> bool:
    """A word that no text but this tenant's or this request's has."""
    plain = word.strip(".,")
    return (
        plain in lexicon().slot_of
        or plain in prompt.tenant.name.split()
        or plain in prompt.tenant.private
        or re.fullmatch(r"KVC(-[0-9A-Z]{4}){4}", plain) is not None
    )


@given(prompts)
def test_its_size_is_known_before_it_is_written(prompt: CanaryPrompt) -> None:
    assert sum(len(piece) for piece in prompt.pieces()) == prompt.size_bytes == len(prompt.text())


@given(prompts)
def test_json_needs_to_escape_nothing(prompt: CanaryPrompt) -> None:
    assert json.dumps(prompt.text()) == f'"{prompt.text()}"'
    assert prompt.text().isprintable()
    assert "  " not in prompt.text()
    assert prompt.words == len(prompt.text().split(" "))


@given(st.integers(0, 700))
def test_padding_adds_just_as_many_words(count: int) -> None:
    plain, padded = SCENE.prompt(1, shape=Shape(1, 1, 0)), SCENE.prompt(1, shape=Shape(1, 1, count))
    assert padded.words == plain.words + count


@pytest.mark.parametrize("size", [1, 1_000, 10_000, 50_000])
def test_pieces_of_any_size_make_the_same_text(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = SCENE.prompt(7, shape=Shape(9, 8, 50))
    whole = prompt.text()
    monkeypatch.setattr(prompt_module, "PIECE_BYTES", size)
    assert prompt.text() == whole
    pieces = [len(piece) for piece in prompt.pieces()]
    assert max(pieces) <= max(size, len(prompt.chapter.template))
    assert len(pieces) == 3 + sum(
        -(-part // max(1, size // len(prompt.chapter.template))) for part in (9, 8)
    )


def test_no_two_requests_begin_alike() -> None:
    """Not two of a run, of a tenant or of two, and not two of two runs: codes are the second word."""
    scenes = (
        SCENE,
        Scene(run=RunIdentity(0x123457, b"a nonce")),
        Scene(run=RunIdentity(0x123456, b"another nonce")),
        Scene(site_key=SiteKey(bytes(32))),
    )
    begins = [
        first_words(scene.prompt(number, number % TENANTS, Shape(0, 0, 0), decoy=decoy))
        for scene in scenes
        for number in range(200)
        for decoy in ([None, (500, 1)] if number == 9 else [None])
    ]
    assert len(set(begins)) == len(begins) - len(
        scenes
    )  # the decoy's carrier and request 9 are one
    seconds = {begin[1] for begin in begins}
    assert len(seconds) == 3 * 200  # two runs of one number differ in names alone


@pytest.mark.parametrize("contact", ["whoever runs this endpoint", "a.b@c.d " * 10])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tenant", range(TENANTS))
def test_every_64_words_hold_something_private(contact: str, shape: Shape, tenant: int) -> None:
    prompt = Scene(contact=contact.strip()).prompt(3, tenant, shape, Position.END)
    words = prompt.text().split(" ")
    private = [at for at, word in enumerate(words) if is_private(word, prompt)]
    assert max(b - a for a, b in pairwise([-1, *private, len(words)])) <= 48


@pytest.mark.parametrize("shape", SHAPES)
def test_every_64_words_of_a_chapter_hold_something_of_the_request_alone(shape: Shape) -> None:
    words = SCENE.prompt(3, 0, shape).text().split(" ")
    own = [at for at, w in enumerate(words) if w.strip(".,") in lexicon().slot_of or "KVC-" in w]
    assert max(b - a for a, b in pairwise([-1, *own, len(words)])) <= 64


@given(prompts)
def test_codes_stand_at_head_middle_and_tail_and_every_600_words(prompt: CanaryPrompt) -> None:
    words = prompt.text().split(" ")
    places = [at for at, word in enumerate(words) if word.startswith("KVC-")]
    assert len(places) == prompt.code_count
    assert places[0] == 1
    padding = prompt.shape.pad_words
    assert len(words) - places[-1] <= 20
    assert max(b - a for a, b in pairwise(places)) <= 600 + padding
    written = [words[at].replace("KVC-", "").replace("-", "").strip(".") for at in places]
    assert written == [characters for _, characters in prompt.codes()]
    assert [identity for identity, _ in prompt.codes()] == [
        prompt.writer.codes.read(characters) for characters in written
    ]


def test_padding_is_less_than_a_chapter_so_codes_are_never_far_apart() -> None:
    """What sizing adds in padding keeps to the same distance."""
    words = SCENE.prompt(1, shape=Shape(2, 2, SCENE.prompt(1).chapter.words)).text().split(" ")
    places = [at for at, word in enumerate(words) if word.startswith("KVC-")]
    assert max(b - a for a, b in pairwise(places)) <= 1_100


@given(prompts)
def test_says_what_it_is_and_whom_to_ask(prompt: CanaryPrompt) -> None:
    head = " ".join(first_words(prompt, 40))
    assert "made by kvcanary to test that requests are kept apart and holds nothing real" in head
    assert f"about it ask {prompt.writer.contact}." in head


@given(prompts)
def test_ends_like_the_sentence_it_asks_for(prompt: CanaryPrompt) -> None:
    name = prompt.decoy[1].name if prompt.decoy else prompt.tenant.name
    lead = f"The ledger label of {name} at the {prompt.asked} is"
    assert prompt.text().endswith(f"Answer: {lead}")
    asked = [m.start() for m in re.finditer(re.escape(f"{lead} KVC-"), prompt.text())]
    if prompt.decoy is None or prompt.asked is Position.START:
        assert len(asked) == 1


@pytest.mark.parametrize("asked", Position)
def test_the_label_asked_for_stands_where_it_says(asked: Position) -> None:
    prompt = SCENE.prompt(5, 2, Shape(4, 4, 30), asked)
    labels = re.findall(r"at the (\w+) is KVC-([0-9A-Z-]+)", prompt.text())
    assert [position for position, _ in labels] == ["start", "middle", "end"]
    for position, code in labels:
        assert code.replace("-", "") == prompt.label(Position(position))


def test_a_decoy_label_is_the_others_and_the_rest_is_its_own() -> None:
    plain, decoy = SCENE.prompt(5, 0), SCENE.prompt(5, 0, decoy=(77, 3))
    assert decoy.label_id(Position.START) == CodeId(SCENE.run.number, 77, 1)
    assert [i for i, _ in plain.codes()][0::2] == [i for i, _ in decoy.codes()][0::2]
    assert {i.request for i, _ in decoy.codes()} == {5, 77}
    assert plain.text() != decoy.text()
    assert plain.tenant.name in decoy.text()


@given(prompts)
def test_is_the_same_text_whenever_it_is_written(prompt: CanaryPrompt) -> None:
    decoy = (prompt.decoy[0], prompt.decoy[1].index) if prompt.decoy else None
    again = Scene().prompt(prompt.number, prompt.tenant.index, prompt.shape, prompt.asked, decoy)
    assert again.text() == prompt.text() == prompt.text()


def test_is_the_same_text_in_another_process() -> None:
    """Replay in a new process, with other hash seeds, sends what was sent."""
    program = (
        "from tests.canary.scene import *; from hashlib import sha256\n"
        "print(sha256(Scene().prompt(9, 2, Shape(5, 4, 77)).text().encode()).hexdigest())"
    )
    lines = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    here = sha256(SCENE.prompt(9, 2, Shape(5, 4, 77)).text().encode()).hexdigest()
    assert lines == [here, here]


@pytest.mark.parametrize(
    "changed",
    [
        Scene(site_key=SiteKey(bytes(32))),
        Scene(run=RunIdentity(0x123457, b"a nonce")),
        Scene(run=RunIdentity(0x123456, b"b nonce")),
    ],
)
def test_another_key_run_or_nonce_is_another_text(changed: Scene) -> None:
    assert changed.prompt(9).text() != SCENE.prompt(9).text()
    if changed.run.number == SCENE.run.number:
        assert changed.prompt(9).stream != SCENE.prompt(9).stream


def test_no_two_requests_have_words_in_common() -> None:
    """Four slot words in a row are 32 bits: among 60,000 places of 20 requests 0.4 pairs by chance."""
    places = Counter(
        prompt.stream[at : at + 4]
        for prompt in (SCENE.prompt(number, 0, Shape(20, 20, 0)) for number in range(20))
        for at in range(len(prompt.stream) - 3)
    )
    assert len(places) > 57_000
    assert sum(places.values()) - len(places) <= 4


@given(st.integers(0, 16_383), shapes, shapes)
def test_a_longer_prompt_of_the_same_number_says_the_same_words(
    number: int, a: Shape, b: Shape
) -> None:
    short, long = sorted((SCENE.prompt(number, shape=s).stream for s in (a, b)), key=len)
    assert long.startswith(short)


@given(prompts)
def test_slot_words_stand_in_the_order_of_the_stream(prompt: CanaryPrompt) -> None:
    words = [word.strip(".,") for word in prompt.text().split(" ")]
    places = [at for at, word in enumerate(words) if word in lexicon().slot_of]
    found = [lexicon().slot_of[words[at]] for at in places]
    assert bytes(byte for _, byte in found) == prompt.stream
    assert [alphabet for alphabet, _ in found] == [at % 6 for at in range(len(found))]
    for slot, at in enumerate(places):
        assert prompt.slot_fraction(slot) * prompt.words == pytest.approx(at, abs=0.01)


@given(prompts)
def test_codes_stand_where_they_are_said_to(prompt: CanaryPrompt) -> None:
    words = prompt.text().split(" ")
    places = [at for at, word in enumerate(words) if word.startswith("KVC-")]
    for position, at in enumerate(places):
        assert prompt.code_fraction(position) * prompt.words == pytest.approx(at, abs=0.01)


def test_requests_of_one_tenant_share_everything_but_their_own_words() -> None:
    """The same bytes outside the slots and the codes: their tokens cost the same to the last one."""

    def blanked(prompt: CanaryPrompt) -> str:
        words = re.sub(r"KVC[0-9A-Z-]+", "#", prompt.text()).split(" ")
        return " ".join("_" if w.strip(".,") in lexicon().slot_of else w for w in words)

    first, second = (SCENE.prompt(number, 1, Shape(3, 3, 100)) for number in (1, 2))
    assert blanked(first) == blanked(second)
    assert first.size_bytes == second.size_bytes
    assert first.chapter is second.chapter


def test_a_million_tokens_are_never_whole() -> None:
    prompt = SCENE.prompt(11, shape=MILLION)
    assert prompt.size_bytes > 5_000_000
    gc.collect()
    tracemalloc.start()
    try:
        largest = max(len(piece) for piece in prompt.pieces())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert largest <= prompt_module.PIECE_BYTES
    assert peak < prompt.size_bytes / 4


def test_a_hundred_in_flight_share_what_is_the_same() -> None:
    """Each holds its own words, a byte each, and one piece at a time: not the text."""
    gc.collect()
    tracemalloc.start()
    try:
        flying = [SCENE.prompt(number, number % TENANTS, MILLION) for number in range(100)]
        begun = [prompt.pieces() for prompt in flying]
        for pieces in begun:
            for piece in islice(pieces, 3):
                assert piece
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100 * (len(flying[0].stream) + prompt_module.PIECE_BYTES + 20_000)
    assert held < sum(prompt.size_bytes for prompt in flying) / 10


def test_its_repr_is_short_and_holds_no_text() -> None:
    assert len(repr(SCENE.prompt(1))) < 1_000
    assert "KVC-" not in repr(SCENE.prompt(1))

"""One answer read: what became of its own label, and whose text it holds otherwise."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.codes import CodeId, CodeMaker, written
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import CanaryPrompt, Position, Shape
from kvcanary.canary.sitekey import SiteKey
from kvcanary.detect.reading import MAX_FOREIGN, MAX_NAMES, Reading, read_answer
from kvcanary.record.exchange import ForeignText, Form, Recall
from tests.canary.scene import Scene

SCENE = Scene()
SHAPE = Shape(3, 3, 10)
BY_POSITION = {
    position: SCENE.plant(number, 0, SHAPE, position) for number, position in enumerate(Position)
}
OWN = BY_POSITION[Position.MIDDLE]
SIBLING = SCENE.plant(10, 0, SHAPE)
OTHER = SCENE.plant(11, 1, SHAPE)
CARRIER = SCENE.plant(12, 2, Shape(0, 1, 0), decoy=(13, 3))
PROMPTS: Mapping[int, CanaryPrompt] = {
    prompt.number: prompt for prompt in (*BY_POSITION.values(), SIBLING, OTHER, CARRIER)
}
TOKENS = {OTHER.number: 50_000}


def read(text: str, prompt: CanaryPrompt = OWN) -> Reading:
    return read_answer(text, prompt, SCENE.recogniser, SCENE.cast, PROMPTS, TOKENS)


def answer(prompt: CanaryPrompt) -> str:
    return f" {written(prompt.label(prompt.asked))} and the list goes on."


# -- recall ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", BY_POSITION.values(), ids=BY_POSITION.keys())
def test_the_label_asked_for_is_kept(prompt: CanaryPrompt) -> None:
    reading = read(answer(prompt), prompt)
    assert reading.recall is Recall.KEPT
    assert reading.foreign == ()
    assert reading.decoy_seen is None


@pytest.mark.parametrize("prompt", BY_POSITION.values(), ids=BY_POSITION.keys())
def test_another_label_of_its_own_is_no_answer_and_nothing_foreign(prompt: CanaryPrompt) -> None:
    for position in Position:
        if position is not prompt.asked:
            reading = read(f"{written(prompt.label(position))} and", prompt)
            assert reading.recall is Recall.LOST
            assert reading.foreign == ()


@pytest.mark.parametrize(
    "text", ["", "I cannot find it.", "KVC-", "\n\n", "the label is the label"]
)
def test_no_label_is_a_lost_one(text: str) -> None:
    assert read(text).recall is Recall.LOST
    assert read(text).foreign == ()


@given(
    st.integers(0, 16), st.sampled_from(["{}", "KVC-{}", "**KVC-{}", " `kvc-{}", "\nKVC\u200b-{}"])
)
def test_four_characters_keep_it_where_the_answer_begins(length: int, form: str) -> None:
    label = OWN.label(OWN.asked)
    text = form.format(label[:length]) + " ill"
    assert read(text).recall is (Recall.KEPT if length >= 4 else Recall.LOST)


@pytest.mark.parametrize("length", [4, 5, 6, 7])
def test_four_characters_elsewhere_keep_nothing(length: int) -> None:
    label = OWN.label(OWN.asked)
    assert read(f"ill KVC-{label[:length]} ill").recall is Recall.LOST
    assert read(f"KVC-{label[1 : 1 + length]} ill").recall is Recall.LOST


def test_eight_characters_keep_it_anywhere() -> None:
    label = OWN.label(OWN.asked)
    for at in range(9):
        assert read(f"ill KVC {label[at : at + 8]} ill 7").recall is Recall.KEPT


def test_thinking_aloud_is_read_like_an_answer() -> None:
    """The sender joins content, reasoning and the rest: the label counts in each, and so does a leak."""
    content, reasoning = "Done.", f"The user wants {answer(OWN)} But {answer(OTHER)}"
    reading = read(f"{content}\n{reasoning}")
    assert reading.recall is Recall.KEPT
    assert [text.request for text in reading.foreign] == [OTHER.number]


# -- foreign text ----------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [SIBLING, OTHER], ids=["of the same tenant", "of another tenant"])
def test_a_code_of_any_other_request_is_foreign(owner: CanaryPrompt) -> None:
    for identity, characters in owner.codes():
        (text,) = read(f"{written(characters)} and").foreign
        assert (text.form, text.request, text.tenant) == (
            Form.CODE,
            owner.number,
            owner.tenant.index,
        )
        assert (text.whole, text.extent, text.altered) == (True, 16, False)
        length = TOKENS.get(owner.number, owner.words)
        assert text.at_tokens == round(owner.code_fraction(identity.position) * length)


def test_a_part_of_a_code_is_foreign_and_called_a_part() -> None:
    (text,) = read(f"KVC-{OTHER.code(3)[:11]} ill").foreign
    assert (text.request, text.extent, text.whole) == (OTHER.number, 11, False)


@pytest.mark.parametrize("owner", [SIBLING, OTHER], ids=["of the same tenant", "of another tenant"])
def test_a_verse_of_any_other_request_is_foreign(owner: CanaryPrompt) -> None:
    chapter = owner.text().index(" In the ")
    verse = owner.text()[chapter : owner.text().index(".", owner.text().index(".", chapter) + 1)]
    foreign = read(verse).foreign
    phrase = next(text for text in foreign if text.form is Form.PHRASE)
    assert (phrase.request, phrase.tenant) == (owner.number, owner.tenant.index)
    assert (phrase.extent, phrase.whole) == (6, True)
    length = TOKENS.get(owner.number, owner.words)
    assert phrase.at_tokens == round(owner.slot_fraction(0) * length)
    forms = {text.form for text in foreign}
    same_tenant = owner.tenant is OWN.tenant
    assert forms == ({Form.PHRASE} if same_tenant else {Form.PHRASE, Form.NAME, Form.WORD})


def test_all_of_another_prompt_is_all_four_forms_and_no_null() -> None:
    reading = read(OTHER.text())
    assert {text.form for text in reading.foreign} == set(Form)
    assert {text.tenant for text in reading.foreign} == {OTHER.tenant.index}
    words = next(text for text in reading.foreign if text.form is Form.WORD)
    assert (words.extent, words.whole) == (8, True)
    assert reading.nulls.names_seen == (OTHER.tenant.name_number,)
    assert reading.nulls.phantom_words == ()


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=lambda prompt: f"request {prompt.number}")
def test_its_whole_own_prompt_said_back_is_nothing_foreign(prompt: CanaryPrompt) -> None:
    reading = read(prompt.text(), prompt)
    assert reading.foreign == ()
    assert reading.nulls.names_seen == ()
    assert reading.nulls.phantom_words == ()
    assert reading.recall is Recall.KEPT


@given(st.sampled_from([*PROMPTS.values()]), st.integers(0, 10_000), st.integers(0, 2_000))
def test_a_stretch_of_its_own_prompt_is_nothing_foreign(
    prompt: CanaryPrompt, begin: int, length: int
) -> None:
    """But for a word that the cut makes another word of."""
    foreign = read(prompt.text()[begin : begin + length], prompt).foreign
    assert [text for text in foreign if text.form is not Form.WORD] == []
    assert sum(text.extent for text in foreign) <= 2


@given(
    st.sampled_from([*PROMPTS.values()]),
    st.sampled_from([*PROMPTS.values()]),
    st.integers(0, 10_000),
    st.integers(0, 2_000),
)
def test_a_stretch_of_another_prompt_is_blamed_on_nobody_else(
    reader: CanaryPrompt, owner: CanaryPrompt, begin: int, length: int
) -> None:
    foreign = read(owner.text()[begin : begin + length], reader).foreign
    requests = {text.request for text in foreign if text.request is not None}
    assert requests <= {owner.number, owner.decoy[0] if owner.decoy else owner.number}
    names = {text.tenant for text in foreign if text.form is Form.NAME}
    assert names <= {owner.tenant.index, owner.decoy[1].index if owner.decoy else -1}


def test_a_flood_of_codes_and_names_makes_no_large_record() -> None:
    """The strongest sightings are kept, and what was cut makes the reading incomplete where odds need it."""
    rng = random.Random(1)
    codes = " ".join(
        written(SCENE.codes.make(CodeId(1, n >> 12, n & 4095))) for n in range(3 * MAX_FOREIGN)
    )
    names = lexicon().names
    crowd = " ".join(" ".join(map(rng.choice, names)) for _ in range(2 * MAX_NAMES))
    reading = read(f"{OTHER.text()[:900]} {codes} {crowd}")
    assert len(reading.foreign) == MAX_FOREIGN
    assert all(text.form is Form.CODE and text.whole for text in reading.foreign)
    assert len(reading.nulls.names_seen) == MAX_NAMES
    assert not reading.nulls.complete


def test_a_code_of_an_older_run_is_foreign_and_its_tenant_unknown() -> None:
    old = CodeId(SCENE.run.number - 1, OTHER.number, 2)
    (text,) = read(written(SCENE.codes.make(old))).foreign
    assert (text.run, text.request, text.tenant, text.at_tokens) == (old.run, 11, None, None)


def test_another_sites_code_is_a_null_and_not_foreign() -> None:
    stranger = CodeMaker(SiteKey(bytes(32))).make(CodeId(SCENE.run.number, 11, 2))
    reading = read(f"It is {written(stranger)}.")
    assert reading.foreign == ()
    assert reading.nulls.unverified_codes == 1


@pytest.mark.parametrize("at", range(16))
def test_one_slip_in_the_label_is_kept_and_no_null(at: int) -> None:
    label = list(OWN.label(OWN.asked))
    label[at] = "0" if label[at] != "0" else "1"
    reading = read(f"The label is {written(''.join(label))}.")
    assert reading.recall is Recall.KEPT
    assert reading.foreign == ()
    assert reading.nulls.unverified_codes == 0


def test_what_is_planted_without_being_sent_as_a_prompt_is_foreign_too() -> None:
    """The stale-page simulation plants its source in the recogniser alone."""
    scene = Scene()
    reader, source = scene.plant(1, 0), scene.plant(2, 4)
    reading = read_answer(source.text(), reader, scene.recogniser, scene.cast, {1: reader}, {})
    assert {text.form for text in reading.foreign} == set(Form)
    assert {text.tenant for text in reading.foreign} == {4}


# -- decoys ----------------------------------------------------------------------------------------


def decoy_label() -> str:
    return CARRIER.label(Position.START)


def test_a_decoy_is_seen_and_not_foreign_where_it_was_planted() -> None:
    reading = read(f"{written(decoy_label())} and the list", CARRIER)
    assert reading.decoy_seen is True
    assert reading.recall is Recall.KEPT
    assert reading.foreign == ()


def test_part_of_a_decoy_is_seen_too() -> None:
    reading = read(f"It is KVC-{decoy_label()[:10]} ill", CARRIER)
    assert reading.decoy_seen is True
    assert reading.foreign == ()


def test_a_decoy_that_does_not_come_is_not_seen() -> None:
    reading = read(f"{written(CARRIER.code(0))} of {CARRIER.tenant.name}", CARRIER)
    assert reading.decoy_seen is False
    assert reading.foreign == ()


@pytest.mark.parametrize("length", [10, 16])
def test_a_decoy_is_foreign_elsewhere_and_known_to_be_of_this_run(length: int) -> None:
    (text,) = read(f"ill KVC-{decoy_label()[:length]} ill").foreign
    assert (text.form, text.request, text.extent) == (Form.CODE, 13, length)
    assert text.run == SCENE.run.number
    assert text.tenant == 3
    assert text.at_tokens == round(CARRIER.code_fraction(1) * CARRIER.words)


def test_a_decoys_name_is_its_bearers_there_and_foreign_elsewhere() -> None:
    name = SCENE.cast.tenants[3].name
    assert read(f"the label of {name}", CARRIER).foreign == ()
    (text,) = read(f"the label of {name}").foreign
    assert (text.form, text.tenant) == (Form.NAME, 3)


# -- nulls -----------------------------------------------------------------------------------------


def test_phantoms_are_nulls_and_never_foreign() -> None:
    for phantom in SCENE.cast.phantoms:
        reading = read(f"{phantom.name}: {' '.join(phantom.private)}")
        assert reading.foreign == ()
        assert reading.nulls.names_seen == (phantom.name_number,)
        assert set(reading.nulls.phantom_words) == set(phantom.private)


def test_a_tenant_that_has_not_been_sent_yet_is_a_phantom() -> None:
    unsent = SCENE.cast.tenants[5]
    reading = read(f"{unsent.name}: {' '.join(unsent.private)}")
    assert reading.foreign == ()
    assert set(reading.nulls.phantom_words) == set(unsent.private)


def test_a_reading_holds_no_text() -> None:
    secret = "customer-4711-said-this"
    shown = repr(read(f"{secret} {answer(OTHER)} {OTHER.text()}"))
    assert secret not in shown
    assert OTHER.label(OTHER.asked) not in shown
    assert isinstance(read(answer(OTHER)).foreign[0], ForeignText)

"""What was planted is found again, however it comes back, and is never taken for somebody else's."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvcanary.canary.codes import ALPHABET, CODE_CHARACTERS, CodeId, CodeMaker, written
from kvcanary.canary.index import LEAST_PARTIAL
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import CanaryPrompt, Shape
from kvcanary.canary.recognise import LEAST_PHRASE, CodeSeen, PhraseSeen
from kvcanary.canary.sitekey import SiteKey
from kvcanary.canary.tenants import Tenant
from kvcanary.probing.answer import Answer
from tests.canary.scene import KEY, TENANTS, Scene

SCENE = Scene()
PROMPTS = [
    SCENE.plant(number, number // 2 % TENANTS, Shape(2, 2, number * 5)) for number in range(12)
]
"""Two of each tenant."""
TEXTS = [prompt.text() for prompt in PROMPTS]
RECOGNISER = SCENE.recogniser
STRANGER = CodeMaker(SiteKey(bytes(32)))

numbers = st.integers(0, len(PROMPTS) - 1)
planted = st.builds(
    lambda number, at: list(PROMPTS[number].codes())[at % PROMPTS[number].code_count],
    numbers,
    st.integers(0, 10**6),
)
foils = st.text(alphabet="ilou", max_size=6)
"""Letters that no code has: text around a part of a code that cannot make it longer by chance."""
ordinary = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="abcXYZ019 .,-_*`\n\\\"'", max_size=40),
    st.sampled_from(
        [
            "Sure! The label is",
            "a UUID, 6f9619ff-8b86-d011-b42d-00cf4fc964ff, and",
            "```json\n{\n",
            "KVC",
            "KVC-",
            "\\u00",
        ]
    ),
)


def one_code(text: str, own: int | None = None) -> CodeSeen:
    """The only code in ``text``."""
    (code,) = RECOGNISER.read(text, own).codes
    return code


def has_mixed_pair(characters: str) -> bool:
    return bool(re.search("[0-9][A-Z]|[A-Z][0-9]", characters))


# -- whole codes -----------------------------------------------------------------------------------


@given(ordinary, planted, ordinary)
def test_a_code_in_any_text_is_found_whole(
    before: str, code: tuple[CodeId, str], after: str
) -> None:
    text = f"{before} {written(code[1])} {after}"
    assert CodeSeen(code[0], CODE_CHARACTERS, altered=False) in RECOGNISER.read(text).codes


@given(ordinary, st.integers(0, 2**26 - 1), st.integers(0, 2**14 - 1), st.integers(0, 2**12 - 1))
def test_a_code_of_an_older_run_is_found_whole_though_nobody_planted_it(
    before: str, run: int, request: int, position: int
) -> None:
    identity = CodeId(run, request, position)
    text = f"{before} {written(SCENE.codes.make(identity))}"
    assert CodeSeen(identity, CODE_CHARACTERS) in RECOGNISER.read(text).codes


def full_width(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def joined_by(separator: str) -> Callable[[str], str]:
    return lambda text: text.replace("-", separator)


def spread(invisible: str) -> Callable[[str], str]:
    return lambda text: invisible.join(text)


ALTERATIONS: dict[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "mixed case": lambda t: "".join(c.lower() if i % 2 else c for i, c in enumerate(t)),
    "spaces": joined_by(" "),
    "dots": joined_by("."),
    "underscores": joined_by("_"),
    "line breaks": joined_by("\n"),
    "hard line breaks": joined_by("-\r\n    "),
    "en dashes": joined_by("–"),
    "minus signs": joined_by("−"),
    "nothing": joined_by(""),
    "spaces around": joined_by(" - "),
    "comma and space": joined_by(", "),
    "slashes": joined_by("/"),
    "zero-width spaces": spread("\u200b"),
    "word joiners": spread("\u2060"),
    "soft hyphens": joined_by("\u00ad"),
    "one zero-width space": joined_by("-\u200b"),
    "letter by letter": spread(" "),
    "bullets": spread("\n- "),
    "bold prefix": lambda t: f"**KVC**-`{t[4:]}`",
    "bold groups": lambda t: "-".join(f"**{part}**" for part in t.split("-")),
    "Markdown escapes": joined_by("\\-"),
    "JSON dash": joined_by("\\u002d"),
    "JSON dash, upper case": joined_by("\\u002D"),
    "JSON line break": joined_by("\\n"),
    "JSON quote": joined_by('\\"'),
    "JSON letters": lambda t: "".join(f"\\u{ord(c):04x}" for c in t),
    "JSON in JSON": lambda t: json.dumps(json.dumps({"label": full_width(t)}))[1:-1],
    "full width": full_width,
    "mathematical": lambda t: "".join(chr(0x1D400 + ord(c) - 65) if c.isalpha() else c for c in t),
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS.keys())
@given(code=planted, before=foils, after=foils)
def test_an_altered_code_is_found_and_marked(
    alter: Callable[[str], str], code: tuple[CodeId, str], before: str, after: str
) -> None:
    text = f"{before} {alter(written(code[1]))} {after}"
    assert one_code(text) == CodeSeen(code[0], CODE_CHARACTERS, altered=True)


@given(
    planted,
    st.lists(
        st.sampled_from(["spaces", "lower case", "full width", "zero-width spaces"]), max_size=4
    ),
)
def test_alterations_on_top_of_each_other_are_undone(
    code: tuple[CodeId, str], names: list[str]
) -> None:
    text = written(code[1])
    for name in names:
        text = ALTERATIONS[name](text)
    assert one_code(text) == CodeSeen(code[0], CODE_CHARACTERS, altered=bool(names))


@given(planted)
def test_a_code_that_also_came_as_written_is_not_called_altered(code: tuple[CodeId, str]) -> None:
    text = f"{written(code[1]).lower()} or rather {written(code[1])}"
    assert one_code(text) == CodeSeen(code[0], CODE_CHARACTERS, altered=False)


@given(planted, foils)
def test_a_code_without_its_prefix_is_found_whole(code: tuple[CodeId, str], around: str) -> None:
    assume(has_mixed_pair(code[1]))
    groups = written(code[1]).removeprefix("KVC-")
    expected = CodeSeen(code[0], CODE_CHARACTERS, altered=True)
    assert one_code(f"{around} {groups} {around}") == expected


# -- parts of codes --------------------------------------------------------------------------------


@given(
    planted,
    st.integers(0, CODE_CHARACTERS),
    st.integers(0, CODE_CHARACTERS),
    st.sampled_from(["", "-", " ", "\n", "–", "\u200b", "**"]),
    foils,
    foils,
)
def test_any_eight_characters_tell_whose_they_are(
    code: tuple[CodeId, str], a: int, b: int, separator: str, before: str, after: str
) -> None:
    begin, end = sorted((a, b))
    part = code[1][begin:end]
    text = before + separator.join(part) + after
    if len(part) < LEAST_PARTIAL:
        assert RECOGNISER.read(text).codes == ()
        assert RECOGNISER.read(f"KVC-{text}").codes == ()
    elif has_mixed_pair(part):
        whole = len(part) == CODE_CHARACTERS
        assert one_code(text) == CodeSeen(code[0], len(part), altered=whole)


@given(planted, st.integers(LEAST_PARTIAL, CODE_CHARACTERS - 1), foils)
def test_behind_the_prefix_a_part_needs_no_digit(
    code: tuple[CodeId, str], length: int, after: str
) -> None:
    assert one_code(f"KVC-{code[1][:length]} {after}") == CodeSeen(code[0], length)


def test_the_exception_letters_alone_without_prefix_and_digit_are_not_looked_for() -> None:
    codes = [code for prompt in PROMPTS for code in prompt.codes()]
    identity, part = next(
        (identity, characters[at : at + 8])
        for identity, characters in codes
        for at in range(9)
        if characters[at : at + 8].isalpha()
    )
    assert RECOGNISER.read(f"ill {part} ill").codes == ()
    assert RECOGNISER.read(f"ill {part} ill").code_windows == 0
    assert one_code(f"KVC {part} ill").identity == identity
    assert one_code(f"ill {part} ill 7 ill").identity == identity


@given(st.lists(st.tuples(planted, st.integers(0, 8), st.integers(8, 16)), min_size=2, max_size=6))
def test_parts_of_several_codes_run_together_are_told_apart(
    parts: list[tuple[tuple[CodeId, str], int, int]],
) -> None:
    expected: dict[CodeId, int] = {}
    pieces = []
    assume(len({identity for (identity, _), _, _ in parts}) == len(parts))
    for (identity, characters), begin, length in parts:
        piece = characters[begin : begin + length]
        assume(has_mixed_pair(piece))
        pieces.append(piece)
        expected[identity] = len(piece)
    seen = {code.identity: code.characters for code in RECOGNISER.read("".join(pieces)).codes}
    assert seen.keys() == expected.keys()
    for identity, length in expected.items():  # a neighbour may make it longer by chance
        assert length <= seen[identity] <= length + 3


@given(planted, planted, st.integers(8, 15))
def test_a_part_beside_a_whole_code_is_found_too(
    whole: tuple[CodeId, str], other: tuple[CodeId, str], length: int
) -> None:
    assume(whole[0] != other[0] and has_mixed_pair(other[1][:length]))
    seen = RECOGNISER.read(f"{written(whole[1])}{other[1][:length]} ill").codes
    assert {code.identity: code.characters for code in seen} == {whole[0]: 16, other[0]: length}


@given(planted, planted)
def test_what_stands_on_both_sides_of_a_code_does_not_become_one(
    whole: tuple[CodeId, str], other: tuple[CodeId, str]
) -> None:
    assume(whole[0] != other[0])
    seen = RECOGNISER.read(f"{other[1][:6]} {written(whole[1])} {other[1][6:12]}").codes
    assert [code.identity for code in seen] == [whole[0]]


@given(planted, st.integers(0, CODE_CHARACTERS - 1), st.integers(1, 31))
def test_a_slip_in_an_own_code_is_neither_foreign_nor_unverified(
    code: tuple[CodeId, str], at: int, by: int
) -> None:
    changed = ALPHABET[(ALPHABET.index(code[1][at]) + by) % len(ALPHABET)]
    text = written(code[1][:at] + changed + code[1][at + 1 :])
    seen = RECOGNISER.read(f"ill {text} ill", own=code[0].request)
    assert [found.identity for found in seen.codes] == [code[0]]
    assert seen.codes[0].characters == max(at, CODE_CHARACTERS - 1 - at)
    assert seen.unverified_codes == 0


@pytest.mark.parametrize(
    "places", [(5, 10), (3, 8), (0, 15), (7, 8), (4, 12), (0, 4), (3, 11), (0, 9, 12)]
)
def test_a_few_slips_are_no_other_sites_code(places: tuple[int, ...]) -> None:
    for prompt in PROMPTS:
        for _, characters in prompt.codes():
            slipped = list(characters)
            for at in places:
                slipped[at] = ALPHABET[(ALPHABET.index(slipped[at]) + 7) % 32]
            seen = RECOGNISER.read(written("".join(slipped)), own=prompt.number)
            assert seen.unverified_codes == 0
            assert {code.identity.request for code in seen.codes} <= {prompt.number}


@given(st.integers(0, 2**26 - 1), st.integers(0, 2**14 - 1), st.sampled_from(["-", ""]))
def test_another_sites_code_is_unverified_and_nobodys(
    run: int, request: int, separator: str
) -> None:
    text = written(STRANGER.make(CodeId(run, request, 1))).replace("-", separator)
    seen = RECOGNISER.read(f"It is {text}, I think.", own=0)
    assert seen.codes == ()
    assert seen.unverified_codes == 1
    assert seen.code_tests == 1


@given(planted)
def test_a_planted_code_is_no_test_of_chance(code: tuple[CodeId, str]) -> None:
    """How often a string could have verified by luck: once for each different one not planted."""
    own = written(code[1])
    strangers = [written(STRANGER.make(CodeId(1, 1, at))) for at in (1, 2, 2)]
    older = written(SCENE.codes.make(CodeId(1, 1, 1)))
    assert RECOGNISER.read(f"{own} {own.lower()} ill").code_tests == 0
    assert RECOGNISER.read(" ".join([own, *strangers, older])).code_tests == 3


@given(st.lists(planted, min_size=1, max_size=3), st.data())
def test_a_code_cut_anywhere_over_chunks_is_found(
    codes: list[tuple[CodeId, str]], data: st.DataObject
) -> None:
    text = " and ".join(f"it is {written(characters)}" for _, characters in codes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    answer = Answer()
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        chunk = {"choices": [{"index": 0, "delta": {"content": text[begin:end]}}]}
        answer.add_event(json.dumps(chunk))
    seen = RECOGNISER.read(answer.content.joined()).codes
    assert {code.identity for code in seen} == {identity for identity, _ in codes}
    assert all(code.whole and not code.altered for code in seen)


# -- stretches of prompts --------------------------------------------------------------------------


@given(numbers, st.integers(0, 20_000), st.integers(0, 4_000))
def test_a_stretch_of_a_prompt_is_never_taken_for_anothers(
    number: int, begin: int, length: int
) -> None:
    text = TEXTS[number][begin : begin + length]
    seen = RECOGNISER.read(text)
    assert {code.identity.request for code in seen.codes} <= {number}
    assert {phrase.request for phrase in seen.phrases} <= {number}
    tenant = PROMPTS[number].tenant
    assert seen.names <= {tenant.name_number}
    cut_off = {text.split(" ")[0], text.split(" ")[-1]}
    assert seen.private_words - set(tenant.private) <= cut_off
    assert seen.unverified_codes == 0


@given(
    numbers, numbers, st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 600)), max_size=8)
)
def test_shreds_of_a_prompt_are_its_own_or_anothers_by_who_asks(
    number: int, reader: int, shreds: list[tuple[int, int]]
) -> None:
    text = " ".join(TEXTS[number][begin : begin + length] for begin, length in shreds)
    seen = RECOGNISER.read(text, own=reader)
    assert {code.identity.request for code in seen.codes} <= {number}
    assert {phrase.request for phrase in seen.phrases} <= {number}


@given(st.lists(st.tuples(numbers, st.integers(0, 20_000), st.integers(300, 900)), max_size=6))
def test_pages_of_several_requests_are_each_attributed(
    pages: list[tuple[int, int, int]],
) -> None:
    """Three hundred characters are more than a verse: each page shows a phrase or a code of its own."""
    text = " ".join(TEXTS[n][begin : begin + length] for n, begin, length in pages)
    whole = [n for n, begin, length in pages if begin + length < len(TEXTS[n])]
    seen = RECOGNISER.read(text)
    requests = {c.identity.request for c in seen.codes} | {p.request for p in seen.phrases}
    assert requests <= {n for n, _, _ in pages}
    assert set(whole) <= requests


def slot_places(prompt: CanaryPrompt) -> list[int]:
    words = prompt.text().split(" ")
    return [at for at, word in enumerate(words) if word.strip(".,") in lexicon().slot_of]


PLACES = [slot_places(prompt) for prompt in PROMPTS]


@given(numbers, numbers, st.integers(0, 10**6), st.integers(LEAST_PHRASE, 40))
def test_four_slot_words_in_a_row_tell_request_and_place(
    owner: int, reader: int, begin: int, count: int
) -> None:
    assume(owner != reader)
    slot = begin % (len(PLACES[owner]) - count)
    words = TEXTS[owner].split(" ")
    stretch = words[PLACES[owner][slot] : PLACES[owner][slot + count - 1] + 1]
    seen = RECOGNISER.read(" ".join(stretch), own=reader)
    assert seen.phrases == (PhraseSeen(owner, slot, count),)
    where = PROMPTS[owner].slot_fraction(slot) * len(words)
    assert where == pytest.approx(PLACES[owner][slot], abs=1)


@given(numbers, st.integers(0, 10**6), st.integers(1, LEAST_PHRASE - 1))
def test_three_slot_words_tell_nothing(owner: int, begin: int, count: int) -> None:
    slot = begin % (len(PLACES[owner]) - count)
    words = TEXTS[owner].split(" ")
    stretch = words[PLACES[owner][slot] : PLACES[owner][slot + count - 1] + 1]
    seen = RECOGNISER.read(" ".join(stretch))
    assert seen.phrases == ()
    assert seen.phrase_windows == 0


@given(numbers, st.integers(0, 10**6), st.integers(1, 5))
def test_the_same_bytes_in_other_alphabets_are_no_phrase(
    owner: int, begin: int, shift: int
) -> None:
    stream = PROMPTS[owner].stream
    slot = begin % (len(stream) - 6)
    words = (
        lexicon().slots[(slot + at + shift) % 6][byte]
        for at, byte in enumerate(stream[slot : slot + 6])
    )
    seen = RECOGNISER.read(" ".join(words))
    assert seen.phrases == ()
    assert seen.phrase_windows == 3


def test_a_short_foreign_phrase_is_found_though_it_begins_like_own_text() -> None:
    """In a long prompt every fourth pair of words occurs by chance; a reader's own must not hide it."""
    scene = Scene()
    own = scene.plant(1, 0, Shape(600, 600, 0))
    other = scene.plant(2, 1, Shape(60, 60, 0))
    shared = 0
    for slot in range(0, len(other.stream) - LEAST_PHRASE, 6):
        run = other.stream[slot : slot + LEAST_PHRASE]
        at = own.stream.find(run[:2])
        while at >= 0 and at % 6:
            at = own.stream.find(run[:2], at + 1)
        if at < 0:
            continue
        shared += 1
        words = (lexicon().slots[index][byte] for index, byte in enumerate(run))
        seen = scene.recogniser.read(" ".join(words), own=1)
        assert seen.phrases == (PhraseSeen(2, slot, LEAST_PHRASE),)
    assert shared > 50


@given(numbers, st.integers(0, 20_000), st.integers(0, 4_000))
def test_own_text_has_nothing_of_others(number: int, begin: int, length: int) -> None:
    seen = RECOGNISER.read(TEXTS[number][begin : begin + length], own=number)
    assert {code.identity.request for code in seen.codes} <= {number}
    assert {phrase.request for phrase in seen.phrases} <= {number}
    assert seen.names <= {PROMPTS[number].tenant.name_number}
    assert seen.complete


def test_a_decoy_is_known_by_parts_and_its_carriers_own_code_is_not_planted() -> None:
    scene = Scene()
    carrier = scene.plant(1, 0, decoy=(9, 3))
    label = scene.codes.make(CodeId(scene.run.number, 9, 1))
    assert label in carrier.text().replace("-", "")
    (seen,) = scene.recogniser.read(f"KVC-{label[:9]} ill").codes
    assert seen == CodeSeen(CodeId(scene.run.number, 9, 1), 9)
    unsent = scene.codes.make(CodeId(scene.run.number, 1, 1))
    assert scene.recogniser.read(f"KVC-{unsent[:9]} ill").codes == ()


# -- names and words -------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", [*SCENE.cast.tenants, *SCENE.cast.phantoms[:4]])
@pytest.mark.parametrize("form", ["{}", "**{}**", "The house of {}.", "«{}»", "“{}”\n"])
def test_names_are_found_whoever_bears_them(tenant: Tenant, form: str) -> None:
    name = tenant.name
    number = tenant.name_number
    for shown in (name, name.title(), name.upper(), name.replace(" ", "-"), full_width(name)):
        assert RECOGNISER.read(form.format(shown)).names == {number}


def test_two_words_of_a_name_or_its_words_in_another_order_are_no_name() -> None:
    for tenant in SCENE.cast.tenants:
        first, second, third = tenant.name.split()
        for text in (f"{first} {second}", f"{second} {third}", f"{second} {first} {third}"):
            assert RECOGNISER.read(text).names == frozenset()
        for text in (f"{first} {second} {second}", f"{first} {third} {third}"):
            assert RECOGNISER.read(text).names == frozenset()
        assert RECOGNISER.read(f"{first} of {second} {third}").names == frozenset()


@given(st.sampled_from([*SCENE.cast.tenants, *SCENE.cast.phantoms]), st.integers(0, 7))
def test_private_words_of_tenants_and_phantoms_are_found(tenant: Tenant, at: int) -> None:
    word = tenant.private[at]
    assert RECOGNISER.read(f"the {word.upper()}, of course").private_words == {word}
    assert RECOGNISER.read(f"the x{word}").private_words == frozenset()


def test_ordinary_sentences_hold_nothing() -> None:
    text = (
        "I'm sorry, but I can't find a ledger label in this text. Version 2.7.1 of the SDK "
        "(build 20240611T0930Z, commit 8f3c1e9ab2) returned HTTP 404 for /v1/models/llama-3-70b."
    )
    seen = RECOGNISER.read(text, own=0)
    assert (seen.codes, seen.phrases) == ((), ())
    assert not seen.names | seen.private_words
    assert seen.unverified_codes == seen.phrase_windows == 0
    assert seen.code_windows <= len(text)


def test_another_site_finds_none_of_it() -> None:
    other = Scene(site_key=SiteKey(bytes(32)))
    other.plant(0)
    seen = other.recogniser.read(" ".join(TEXTS))
    assert (seen.codes, seen.phrases) == ((), ())
    assert other.site_key != KEY
    assert seen.unverified_codes == sum(prompt.code_count for prompt in PROMPTS)

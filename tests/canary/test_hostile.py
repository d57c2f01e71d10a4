"""A server may send anything: what is done about it is bounded, and none of it raises."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice

import pytest

from kvcanary.canary import index, recognise
from kvcanary.canary.codes import ALPHABET, CodeId, CodeMaker, written
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import Shape
from kvcanary.canary.recognise import ENOUGH_LOOKUPS, MAX_LOOKUPS, Recogniser
from kvcanary.canary.sitekey import SiteKey
from tests.canary.scene import Scene

SIZE = 1_000_000
SCENE = Scene()
PROMPTS = [SCENE.plant(number, number, Shape(20, 20, 30)) for number in range(4)]
STRANGER = CodeMaker(SiteKey(bytes(32)))


def filled(*parts: str) -> str:
    """A million characters of these, over and over."""
    text = "".join(parts)
    return (text * (SIZE // len(text) + 1))[:SIZE]


def slot_flood(seed: int, alphabets: Iterator[int]) -> str:
    rng = random.Random(seed)
    words = (rng.choice(lexicon().slots[alphabet]) for alphabet in alphabets)
    return " ".join(islice(words, SIZE // 8))


def own_shreds() -> str:
    """Phrases of four own words in any order: each is own text, and each costs a look-up."""
    rng, stream = random.Random(5), PROMPTS[0].stream
    places = (6 * rng.randrange(len(stream) // 6) for _ in range(SIZE // 40))
    shreds = (stream[at : at + 6] for at in places)
    return " ".join(lexicon().slots[i][b] for shred in shreds for i, b in enumerate(shred))


def strings(alphabet: str, seed: int) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=SIZE))


LABELS = [written(characters) for prompt in PROMPTS for _, characters in prompt.codes()]
FLOODS = {
    "slot words": slot_flood(1, cycle(range(6))),
    "slot words of one alphabet": slot_flood(2, cycle([0])),
    "own phrases": own_shreds(),
    "own text": filled(PROMPTS[0].text(), " "),
    "foreign text": filled(PROMPTS[1].text(), " "),
    "names": filled(*(f"{t.name} " for t in (*SCENE.cast.tenants, *SCENE.cast.phantoms))),
    "one name word": filled(SCENE.cast.tenants[0].name.split()[0] + " "),
    "digits": filled("0123456789"),
    "code characters": strings(ALPHABET, 3),
    "hexadecimal": strings("0123456789abcdef", 4),
    "digits and letters in turn": filled("A1"),
    "prefixes": filled("KVC"),
    "written prefixes": filled("KVC-"),
    "prefixes and digits": filled("KVC0"),
    "one code": filled(LABELS[0], " ills "),
    "own codes, far apart": filled(*(f"{label} {'ills ' * 10}" for label in LABELS)),
    "codes in lower case, far apart": filled(*(f"{a.lower()} {'ills ' * 10}" for a in LABELS)),
    "one seed of a code": filled(PROMPTS[0].code(3)[:4]),
    "parts just too short": filled(*(f"{label[4:13]} ill " for label in LABELS)),
    "parts": filled(*(f"{label[4:14]} ill " for label in LABELS)),
    "codes with slips": filled(*(f"{label[:7]}0{label[8:12]}0{label[13:]} " for label in LABELS)),
    "other sites' codes": " ".join(
        written(STRANGER.make(CodeId(1, n >> 12, n & 0xFFF))) for n in range(SIZE // 24)
    ),
    "zero-width spaces": filled("\u200b"),
    "invisible codes": filled("\u200b".join(LABELS[0]), "\u2060"),
    "lone surrogates": filled("\ud800"),
    "surrogates the wrong way round": filled("\udc00\ud800K"),
    "what becomes eighteen letters": filled("\ufdfa"),
    "combining marks": filled("\u0300\u0301"),
    "backslashes": filled("\\"),
    "backslashes and letters": filled("\\\\u00", "\\x"),
    "escapes": filled("\\u004b\\u0056\\u0043"),
    "spaces": filled(" "),
    "letters": filled("ill"),
    "dashes": filled("-"),
    "nul": filled("\0"),
}


class Counted:
    """How often each step of the work is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[str] = Counter()
        for owner, name in (
            (recognise, "_longest"),
            (CodeIndex, "_longest"),
            (index, "_extend"),
            (CodeMaker, "read"),
            (CodeMaker, "make"),
            (CodeIndex, "has_near"),
        ):
            monkeypatch.setattr(owner, name, self._counting(owner, name))

    def _counting(self, owner: object, name: str) -> object:
        real = getattr(owner, name)
        key = f"{getattr(owner, '__name__', '')}.{name}"

        def counting(*args: object) -> object:
            self.times[key] += 1
            return real(*args)

        return counting


@pytest.mark.parametrize("text", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_costs_a_bounded_number_of_steps(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    seen = SCENE.recogniser.read(text, own=0)
    times = counted.times
    assert times["kvcanary.canary.recognise._longest"] <= MAX_LOOKUPS * len(PROMPTS)
    assert seen.phrase_windows <= MAX_LOOKUPS
    assert seen.code_windows <= max(len(text), SIZE)
    assert times["CodeIndex._longest"] <= len(text) / 4
    assert times["kvcanary.canary.index._extend"] <= len(text) / 4
    assert times["CodeMaker.read"] <= len(text) / 3 + len(text) / 19 + 1
    assert times["CodeIndex.has_near"] <= len(text) / 19
    assert times["CodeMaker.make"] == 0
    requests = {c.identity.request for c in seen.codes} | {p.request for p in seen.phrases}
    assert requests <= {prompt.number for prompt in PROMPTS}


@pytest.mark.parametrize("name", ["slot words", "own phrases"])
def test_the_more_is_planted_the_fewer_look_ups_a_flood_gets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work, bytes searched, stays the same; what an honest answer needs is always done."""
    planted = sum(len(prompt.stream) for prompt in PROMPTS[1:])
    monkeypatch.setattr(recognise, "MAX_SEARCHED", 200 * planted)
    seen = SCENE.recogniser.read(FLOODS[name], own=0)
    assert (seen.complete, seen.phrase_windows <= 200) == (False, True)
    monkeypatch.setattr(recognise, "MAX_SEARCHED", planted)
    assert SCENE.recogniser.read(FLOODS["slot words"], own=0).phrase_windows == ENOUGH_LOOKUPS


@pytest.mark.parametrize("name", ["prefixes", "written prefixes", "one code"])
def test_the_same_string_is_verified_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    SCENE.recogniser.read(FLOODS[name].replace("KVC-", "KVC"), own=0)
    assert counted.times["CodeMaker.read"] <= 20


@pytest.mark.parametrize("name", ["slot words", "own phrases"])
def test_an_answer_that_was_not_read_to_its_end_says_so(name: str) -> None:
    assert not SCENE.recogniser.read(FLOODS[name], own=0).complete


@pytest.mark.parametrize("name", ["own text", "foreign text", "code characters", "backslashes"])
def test_an_answer_that_was_read_to_its_end_says_so(name: str) -> None:
    assert SCENE.recogniser.read(FLOODS[name], own=0).complete


def test_leading_and_trailing_floods_hide_no_code() -> None:
    code = LABELS[5]
    for name, flood in FLOODS.items():
        if "surrogate" not in name and "backslash" not in name:
            seen = SCENE.recogniser.read(f"{flood[:5_000]} {code} {flood[:5_000]}").codes
            assert any(c.whole and c.identity == PROMPTS[0].code_id(5) for c in seen), name


def test_an_empty_recogniser_reads_too() -> None:
    empty = Recogniser(SCENE.codes, lexicon(), SCENE.cast)
    seen = empty.read(PROMPTS[0].text())
    assert {code.identity.request for code in seen.codes} == {0}
    assert seen.phrases == ()
    assert empty.read("") == empty.read("", own=7)

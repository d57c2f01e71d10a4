"""Nothing that was planted is found in 100 MB of ordinary text: the null of every accusation.

Twenty thousand codes and 1.4 million private words of ten requests of a million tokens each are looked
for in 46 MB of made-up English, 4 MB of programs and 50 MB of fresh identifiers (UUIDs, hashes, base64,
base32, licence keys in the very characters of codes, part numbers, dates, log lines).

What chance predicts (``kvcanary.canary.odds``): about 50 million places where part of a code could
stand, so 8 agreements of eight characters or more with some planted code, 0.2 of nine, 0.006 of ten
and 0.0002 of eleven; a whole code verifies by luck with 1e-6 at most. So nothing of eleven characters may
be there, and of the shorter ones no more than predicted. In a real run the answers have some thousand
places and not fifty million: there ten characters are as rare as eleven are here.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

import pytest

from kvcanary.canary import odds
from kvcanary.canary.codes import CodeId
from kvcanary.canary.index import LEAST_PARTIAL
from kvcanary.canary.prompt import Shape
from kvcanary.canary.recognise import Recogniser
from tests.canary import corpus
from tests.canary.scene import TENANTS, Scene

REQUESTS = 10
CHAPTERS = 2_000
TELLING = 11
"""Characters of a code that are nowhere in the whole corpus."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@dataclass
class Tally:
    """What was found in one kind of text."""

    characters: int = 0
    code_windows: int = 0
    phrase_windows: int = 0
    parts: dict[CodeId, int] = field(default_factory=dict)
    phrases: Counter[int] = field(default_factory=Counter)
    unverified: int = 0
    complete: bool = True
    first: bytes = b""
    """Digest of the first megabyte."""

    def read(self, texts: Iterator[str], recogniser: Recogniser) -> "Tally":
        for text in texts:
            seen = recogniser.read(text)
            self.first = self.first or digest(text)
            self.characters += len(text)
            self.code_windows += seen.code_windows
            self.phrase_windows += seen.phrase_windows
            self.parts |= {code.identity: code.characters for code in seen.codes}
            self.phrases.update(phrase.words for phrase in seen.phrases)
            self.unverified += seen.unverified_codes
            self.complete &= seen.complete
        return self


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    scene = Scene()
    for number in range(REQUESTS):
        scene.plant(number, number % TENANTS, Shape(CHAPTERS // 2, CHAPTERS // 2, 0))
    assert scene.recogniser.planted_codes > 20_000
    return scene.recogniser


@pytest.fixture(scope="module")
def found(recogniser: Recogniser) -> dict[str, Tally]:
    texts = {
        "prose": corpus.prose(46),
        "source": corpus.source(4),
        "identifiers": corpus.identifiers(50),
    }
    return {kind: Tally().read(text, recogniser) for kind, text in texts.items()}


def test_it_is_a_hundred_megabytes_and_all_of_it_was_read(found: dict[str, Tally]) -> None:
    assert found["prose"].characters >= 46_000_000
    assert found["source"].characters >= 4_000_000
    assert found["identifiers"].characters >= 49_500_000
    assert found["identifiers"].code_windows >= 40_000_000
    assert all(tally.complete for tally in found.values())


def test_no_code_is_found_whole_or_nearly(found: dict[str, Tally], recogniser: Recogniser) -> None:
    windows = sum(tally.code_windows for tally in found.values())
    assert odds.partial_code(TELLING, windows, recogniser.planted_codes) < 1e-3
    longest = [length for tally in found.values() for length in tally.parts.values()]
    assert [length for length in longest if length >= TELLING] == []


@pytest.mark.parametrize("kind", ["prose", "source", "identifiers"])
def test_short_parts_are_found_no_more_often_than_chance_says(
    kind: str, found: dict[str, Tally], recogniser: Recogniser
) -> None:
    tally = found[kind]
    for length in range(LEAST_PARTIAL, TELLING):
        expected = odds.partial_code(length, tally.code_windows, recogniser.planted_codes)
        seen = sum(part >= length for part in tally.parts.values())
        assert seen <= expected + 4 * expected**0.5 + 1


def test_no_phrase_is_found(found: dict[str, Tally], recogniser: Recogniser) -> None:
    windows = sum(tally.phrase_windows for tally in found.values())
    assert odds.phrase(6, windows, recogniser.planted_slots) < 1e-3
    assert [words for tally in found.values() for words in tally.phrases if words >= 6] == []


def test_nothing_has_the_shape_of_a_code(found: dict[str, Tally]) -> None:
    assert {kind: tally.unverified for kind, tally in found.items() if tally.unverified} == {}


@pytest.mark.parametrize("kind", corpus.IDENTIFIERS)
def test_what_is_there_is_found_in_the_thick_of_it(kind: str, recogniser: Recogniser) -> None:
    """The corpus is no haystack that hides everything: parts put into it are found."""
    rng, prompt = random.Random(3), recogniser.prompts[3]
    for position in range(2, 40):
        before, after = (corpus.joined(corpus.IDENTIFIERS[kind], 2_000, rng) for _ in range(2))
        (code,) = recogniser.read(f"{before}{prompt.code(position)[:TELLING]}{after}").codes
        assert code.identity == prompt.code_id(position)
        assert code.characters >= TELLING


def test_it_is_the_same_text_every_time(found: dict[str, Tally]) -> None:
    again = {
        "prose": next(corpus.prose(1)),
        "source": next(corpus.source(1)),
        "identifiers": next(corpus.identifiers(1)),
    }
    assert {kind: digest(text) for kind, text in again.items()} == {
        kind: tally.first for kind, tally in found.items()
    }

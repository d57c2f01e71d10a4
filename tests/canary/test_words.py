"""The word lists of the canary text keep what the text and its detectors rely on."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources

import pytest

SLOTS = {"slot_a": 5, "slot_b": 6, "slot_c": 6, "slot_d": 7, "slot_e": 8, "slot_f": 9}
NAMES = {"name_a": 7, "name_b": 5, "name_c": 8}
ALPHABETS = SLOTS | NAMES
LISTS = (*ALPHABETS, "private")

BANNED = """
about abuse account action answer attack batch because block blood bomb cache cancer christian
clerk closing cocaine corpse credential crime death devil doctor drug engine error failure
gateway google hatred jesus jewish kill killer knife label ledger leak model monday money
murder muslim opening page password payment pistol poison prefix prison private prompt
question queue rape request republican secret server sex should slave suicide system tenant
terror token trump vault victim virus wallet war weapon worker
"""


def read(name: str) -> str:
    path = resources.files("kvcanary").joinpath("canary", "words", f"{name}.txt")
    return path.read_text(encoding="ascii")


def words(name: str) -> list[str]:
    return read(name).split("\n")[:-1]


def one_letter_open(word: str) -> Iterator[str]:
    """Two words of one length share one of these when they differ in at most one letter."""
    return (f"{word[:at]}.{word[at + 1 :]}" for at in range(len(word)))


@pytest.mark.parametrize("name", LISTS)
def test_is_a_sorted_list_of_lower_case_words(name: str) -> None:
    assert read(name).endswith("\n")
    assert words(name) == sorted(set(words(name)))
    assert [word for word in words(name) if not re.fullmatch(r"[a-z]{4,9}", word)] == []


@pytest.mark.parametrize(("name", "length"), ALPHABETS.items())
def test_an_alphabet_has_a_word_of_one_length_for_each_byte(name: str, length: int) -> None:
    assert len(words(name)) == 256
    assert {len(word) for word in words(name)} == {length}


def test_there_are_private_words_for_many_tenants() -> None:
    assert len(words("private")) >= 768


def test_no_word_is_in_two_lists() -> None:
    times = Counter(itertools.chain.from_iterable(map(words, LISTS)))
    assert [word for word, count in times.items() if count > 1] == []


def test_no_two_words_of_the_alphabets_differ_in_one_letter() -> None:
    seen: dict[str, str] = {}
    pairs = []
    for word in itertools.chain.from_iterable(map(words, ALPHABETS)):
        for pattern in one_letter_open(word):
            if pattern in seen:
                pairs.append((seen[pattern], word))
            seen[pattern] = word
    assert pairs == []


def test_no_word_comes_in_singular_and_plural() -> None:
    everything = set(itertools.chain.from_iterable(map(words, LISTS)))
    plurals = {plural for word in everything for plural in (f"{word}s", f"{word}es")}
    assert sorted(plurals & everything) == []


@pytest.mark.parametrize("name", LISTS)
def test_holds_no_banned_word(name: str) -> None:
    assert sorted(set(BANNED.split()) & set(words(name))) == []


def test_no_word_stands_in_the_sentences_that_all_share() -> None:
    from kvcanary.canary import verses

    shared = [*verses.VERSES, verses.WAYPOINT, verses.SHEET, verses.NOTICE]
    shared += [
        verses.LABEL,
        verses.QUESTION,
        verses.RECITE,
        verses.ANSWER,
        verses.PAD,
        "whoever runs this endpoint",
    ]
    sentence_words = set(re.findall("[a-z]+", " ".join(shared).lower()))
    assert sentence_words.isdisjoint(itertools.chain.from_iterable(map(words, LISTS)))

"""The copier: what followed the most recent place of the longest suffix."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.lab import model as module
from kvcanary.lab.model import Continuation, ModelShape, longest_recent_match, outline, resident
from kvcanary.lab.tokenizer import IntArray, Special

check = settings(deadline=None, derandomize=True, max_examples=300)
EXACT = ModelShape(seed=1, suffix_tokens=6, copy_error_rate=0.0, prior=99)


def ids(*values: int) -> IntArray:
    return np.array(values, np.int32)


def arrays(least: int, most: int, kinds: int) -> st.SearchStrategy[IntArray]:
    numbers = st.integers(1, kinds)
    return st.lists(numbers, min_size=least, max_size=most).map(lambda v: np.array(v, np.int32))


def suffix_at(text: list[int], pattern: list[int], end: int) -> int:
    """Length of the suffix of the pattern that stands at ``end``."""
    length = 0
    while length < min(len(pattern), end + 1) and text[end - length] == pattern[-1 - length]:
        length += 1
    return length


@check
@given(arrays(1, 60, 3), arrays(1, 6, 3), st.integers(1, 9))
def test_the_match_is_the_longest_and_then_the_most_recent(
    text: IntArray, pattern: IntArray, chunk: int
) -> None:
    lengths = [suffix_at(text.tolist(), pattern.tolist(), end) for end in range(len(text))]
    longest = max(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        match = longest_recent_match(text, pattern, len(text))
    if longest == 0:
        assert match is None
        return
    assert match is not None
    assert match.length == longest
    assert match.end == max(end for end, length in enumerate(lengths) if length == longest)
    assert match.newer == max(lengths[match.end + 1 :], default=0)


@check
@given(arrays(1, 80, 3), st.integers(0, 5))
def test_not_looking_again_changes_nothing(text: IntArray, serial: int) -> None:
    shape = ModelShape(seed=1, suffix_tokens=6, copy_error_rate=0.1, prior=99)
    lazy = Continuation(shape, serial, ignore_eos=True)
    said: list[int] = []
    for step in range(30):
        output = np.array(said, np.int32)
        token = lazy.next_token(text, output)
        fresh = Continuation(shape, serial, ignore_eos=True, first_step=step)
        assert token == fresh.next_token(text, output)
        assert token is not None
        said.append(token)


def test_it_looks_again_less_than_once_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counting(text: IntArray, pattern: IntArray, end: int) -> object:
        nonlocal looked
        looked += 1
        return longest_recent_match(text, pattern, end)

    monkeypatch.setattr(module, "longest_recent_match", counting)
    text = np.concatenate((np.arange(1, 400, dtype=np.int32), np.arange(1, 9, dtype=np.int32)))
    answer = Continuation(EXACT, 1, ignore_eos=False)
    said: list[int] = []
    for _ in range(100):
        token = answer.next_token(text, np.array(said, np.int32))
        assert token is not None
        said.append(token)
    assert said == list(range(9, 109))
    assert looked < 30


def test_the_most_recent_of_equal_suffixes_is_continued() -> None:
    text = ids(1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3)
    assert Continuation(EXACT, 1, ignore_eos=False).next_token(text, ids()) == 8


def test_the_end_of_what_was_read_is_the_end_of_the_answer() -> None:
    text = ids(5, 1, 2, 3)
    assert Continuation(EXACT, 1, ignore_eos=False).next_token(text, ids(2, 3)) is None
    assert Continuation(EXACT, 1, ignore_eos=True).next_token(text, ids(2, 3)) in text.tolist()


def test_nothing_resident_leaves_the_prior() -> None:
    assert Continuation(EXACT, 1, ignore_eos=False).next_token(ids(), ids(4)) == EXACT.prior


def test_virgin_slots_and_role_tags_are_looked_through() -> None:
    assert resident(ids(1, 0, Special.END, 2, Special.ASSISTANT)).tolist() == [1, 2]


@check
@given(arrays(0, 60, 8), arrays(0, 60, 8), st.integers(1, 9))
def test_an_outline_tells_texts_apart_but_not_names(
    text: IntArray, other: IntArray, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_OUTLINE", size)
        assert outline(text) == outline(text * 7 + 1000)
        if len(text) != len(other):
            assert outline(text) != outline(other)
    same = {(a, b) for a, b in zip(text.tolist(), other.tolist(), strict=False)}
    if len(text) == len(other) and len({a for a, _ in same}) < len(same):
        assert outline(text) != outline(other)


def test_chances_are_the_texts_unless_the_model_is_unrepeatable() -> None:
    text = np.random.default_rng(1).integers(1, 50, 500, dtype=np.int32)

    def choices(shape: ModelShape) -> set[int]:
        return {Continuation(shape, n, ignore_eos=True).choose(text, 1000) for n in range(9)}

    assert len(choices(EXACT)) == 1
    assert len(choices(replace(EXACT, repeatable=False))) > 7


def test_a_forgetful_model_sees_the_end_only() -> None:
    assert replace(EXACT, forgetful_tokens=2).attended(ids(1, 2, 0, 3)).tolist() == [2, 3]


def test_chance_is_an_index_so_renaming_renames() -> None:
    shape = ModelShape(seed=3, suffix_tokens=6, copy_error_rate=0.5, prior=99)
    text = np.random.default_rng(1).integers(1, 50, 500, dtype=np.int32)

    def answer(text: IntArray) -> list[int]:
        copier, said = Continuation(shape, 4, ignore_eos=True), list[int]()
        for _ in range(50):
            said.append(copier.next_token(text, np.array(said, np.int32)) or 0)
        return said

    assert answer(text * 7 + 1000) == [token * 7 + 1000 for token in answer(text)]

"""How an answer copies a passage: what is there twice, what is left out, and what is only a slip."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.canary.prompt import Position, Shape
from kvcanary.detect.recital import LEAST_COPIED, MAX_CHARACTERS, NEAR, SLIP, recital_of
from kvcanary.record.recital import Recital
from tests.canary.scene import Scene

PROMPT = Scene().prompt(1, shape=Shape(2, 1, 40), asked=Position.START)
PASSAGE = PROMPT.passage(8_000)
WORDS = PASSAGE.split()


def recited(words: list[str]) -> Recital:
    found = recital_of(" ".join(words), PASSAGE)
    assert found
    return found


def test_a_passage_is_what_stands_behind_the_label_up_to_the_last_chapter() -> None:
    text = PROMPT.text()
    assert PASSAGE in text
    assert PASSAGE.startswith("KVC-")
    assert PROMPT.passage(100) == PASSAGE[:100]
    assert "Please copy" not in PROMPT.passage(10**6)
    middle = Scene().prompt(1, shape=Shape(2, 1, 40), asked=Position.MIDDLE).passage(8_000)
    assert text.endswith(text[text.index(middle) :])
    assert text.index(middle) > text.index(PASSAGE)


@pytest.mark.parametrize("before", ["", "Sure! Here it is:\n\n**", "The ledger label is "])
def test_a_faithful_copy_has_no_seam(before: str) -> None:
    found = recital_of(f"{before}{PASSAGE[:3_000]}** and so on", PASSAGE)
    assert found
    assert not found.broken
    assert found.copied > 2_000


@given(at=st.integers(40, 200), count=st.integers(6, 16))
@settings(deadline=None, derandomize=True)
def test_words_that_are_said_again_are_a_seam(at: int, count: int) -> None:
    found = recited([*WORDS[:at], *WORDS[at - count : at + 100]])
    assert (found.repeated, found.skipped) == (1, 0)


@given(at=st.integers(40, 200), count=st.integers(6, 16))
@settings(deadline=None, derandomize=True)
def test_words_that_are_left_out_are_a_seam(at: int, count: int) -> None:
    found = recited([*WORDS[:at], *WORDS[at + count : at + 100]])
    assert (found.repeated, found.skipped) == (0, 1)


@given(
    at=st.integers(40, 200),
    gone=st.integers(0, 2),
    put=st.lists(st.sampled_from(["the", "stone", "Oh", "KVC", "7"]), max_size=2),
)
@settings(deadline=None, derandomize=True)
def test_a_word_or_two_are_a_slip(at: int, gone: int, put: list[str]) -> None:
    if sum(map(len, WORDS[at : at + gone])) > SLIP:
        return
    found = recited([*WORDS[:at], *put, *WORDS[at + gone : at + 100]])
    assert not found.broken


@pytest.mark.parametrize("moved", [-100, 100, 250])
def test_a_copy_that_goes_on_far_away_has_lost_its_place_and_no_piece(moved: int) -> None:
    assert len(" ".join(WORDS[120 : 120 + abs(moved)])) > NEAR
    assert not recited([*WORDS[:130], *WORDS[130 + moved : 250 + moved]]).broken


def test_a_seam_with_something_between_is_none() -> None:
    stray = ["zebra", "quagga", "okapi", "zebra"]
    assert not recited([*WORDS[:130], *stray, *WORDS[118:250]]).broken


def test_what_hardly_copies_is_no_recital() -> None:
    assert recital_of("", PASSAGE) is None
    assert recital_of("I cannot help with that. " * 50, PASSAGE) is None
    assert recital_of(PASSAGE[:LEAST_COPIED], PASSAGE) is None
    assert recital_of(PASSAGE, "") is None


@pytest.mark.parametrize("unit", ["a", "KVC-", WORDS[0], " ".join(WORDS[5:40])])
def test_a_flood_is_looked_at_in_bounded_steps(unit: str) -> None:
    short, long = (unit * (size // len(unit) + 1) for size in (MAX_CHARACTERS, 1_000_000))
    assert recital_of(short, PASSAGE) == recital_of(long, PASSAGE)

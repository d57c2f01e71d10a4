"""The odds that accusations rest on, against brute force in spaces small enough for chance to strike."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary import odds
from kvcanary.canary.codes import ALPHABET, CODE_CHARACTERS
from kvcanary.canary.index import LEAST_PARTIAL


@pytest.mark.parametrize("characters", [1, 2, 3])
def test_agreements_of_a_few_characters_are_as_many_as_said(characters: int) -> None:
    rng = random.Random(characters)
    codes = ["".join(rng.choices(ALPHABET, k=CODE_CHARACTERS)) for _ in range(40 * 8**characters)]
    text = "".join(rng.choices(ALPHABET, k=2_000 + characters - 1))
    windows = [text[at : at + characters] for at in range(2_000)]
    parts: dict[str, int] = {}
    for code in codes:
        for at in range(CODE_CHARACTERS - characters + 1):
            part = code[at : at + characters]
            parts[part] = parts.get(part, 0) + 1
    seen = sum(parts.get(window, 0) for window in windows)
    assert seen == pytest.approx(odds.partial_code(characters, len(windows), len(codes)), rel=0.06)


@pytest.mark.parametrize("words", [1, 2])
def test_agreements_of_a_few_words_are_as_many_as_said(words: int) -> None:
    rng = random.Random(words)
    stream = rng.randbytes(6 * 4_000 * words)
    counts: dict[tuple[int, bytes], int] = {}
    for slot in range(len(stream) - words + 1):
        key = slot % 6, stream[slot : slot + words]
        counts[key] = counts.get(key, 0) + 1
    windows = 20_000 * words
    seen = sum(counts.get((rng.randrange(6), rng.randbytes(words)), 0) for _ in range(windows))
    assert seen == pytest.approx(odds.phrase(words, windows, len(stream)), rel=0.08)


@pytest.mark.parametrize(
    ("hits", "tries", "chance"), [(1, 5, 0.1), (3, 8, 0.25), (4, 4, 0.5), (2, 30, 0.02)]
)
def test_the_upper_tail_is_what_dice_say(hits: int, tries: int, chance: float) -> None:
    rng = random.Random(hits)
    rounds = 40_000
    reached = sum(sum(rng.random() < chance for _ in range(tries)) >= hits for _ in range(rounds))
    expected = odds.at_least(hits, tries, chance)
    assert abs(reached / rounds - expected) < 4.5 * (expected / rounds) ** 0.5


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0, 1))
def test_odds_of_hits_are_odds(hits: int, tries: int, chance: float) -> None:
    value = odds.at_least(hits, max(hits, tries), chance)
    assert 0 <= value <= 1
    assert value >= odds.at_least(hits + 1, max(hits, tries) + 1, chance) * (chance > 0) - 1e-12
    assert odds.at_least(0, tries, chance) == 1


def test_the_least_part_reported_has_the_odds_that_the_index_states() -> None:
    assert LEAST_PARTIAL == 8
    assert odds.partial_code(LEAST_PARTIAL, 1, 100_000) == pytest.approx(8.2e-7, rel=0.01)


def test_what_a_run_of_the_incidents_size_needs_to_accuse() -> None:
    """Twenty prompts of 700,000 tokens (28,000 codes, two million words), 20 answers, 50 places each."""
    windows, codes, slots = 20 * 50, 28_000, 2_000_000
    assert odds.partial_code(9, windows, codes) > odds.FORM_BUDGET
    assert odds.partial_code(10, windows, codes) < odds.FORM_BUDGET
    assert odds.phrase(5, 20 * 10, slots) > odds.FORM_BUDGET
    assert odds.phrase(6, 20 * 10, slots) < 10 * odds.FORM_BUDGET


@given(st.integers(8, 15), st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_of_a_code_is_stronger_evidence(length: int, windows: int, planted: int) -> None:
    assert odds.partial_code(length + 1, windows, planted) < odds.partial_code(
        length, windows, planted
    )

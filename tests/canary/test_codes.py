"""Codes verify themselves, look random, and nobody else can make one."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.codes import (
    ALPHABET,
    CANONICAL_LENGTH,
    CODE_CHARACTERS,
    MAX_POSITIONS,
    MAX_REQUESTS,
    RUN_BITS,
    CodeId,
    CodeMaker,
    written,
)
from kvcanary.canary.sitekey import SiteKey

MAKER = CodeMaker(SiteKey(bytes(range(32))))
OTHER = CodeMaker(SiteKey(bytes(range(1, 33))))

identities = st.builds(
    CodeId,
    run=st.integers(0, (1 << RUN_BITS) - 1),
    request=st.integers(0, MAX_REQUESTS - 1),
    position=st.integers(0, MAX_POSITIONS - 1),
)


@given(identities)
def test_says_what_it_was_made_of(identity: CodeId) -> None:
    code = MAKER.make(identity)
    assert len(code) == CODE_CHARACTERS
    assert set(code) <= set(ALPHABET)
    assert MAKER.read(code) == identity


@given(identities, st.integers(0, CODE_CHARACTERS - 1), st.integers(1, 31))
def test_with_one_character_changed_it_says_nothing(identity: CodeId, at: int, by: int) -> None:
    code = MAKER.make(identity)
    changed = ALPHABET[(ALPHABET.index(code[at]) + by) % len(ALPHABET)]
    assert MAKER.read(code[:at] + changed + code[at + 1 :]) is None


@given(identities, st.integers(1, CODE_CHARACTERS - 1))
def test_turned_round_it_says_nothing(identity: CodeId, by: int) -> None:
    code = MAKER.make(identity)
    if code[by:] + code[:by] != code:
        assert MAKER.read(code[by:] + code[:by]) is None


@given(identities)
def test_what_only_looks_or_counts_like_a_code_says_nothing(identity: CodeId) -> None:
    code = MAKER.make(identity)
    assert MAKER.read(f"0{code}") is None
    assert MAKER.read(code.replace("0", "O")) is None or "0" not in code
    assert MAKER.read(code.lower()) is None or code.isdigit()


def test_another_site_reads_none_of_them() -> None:
    codes = [MAKER.make(CodeId(7, request, 3)) for request in range(MAX_REQUESTS)]
    assert [code for code in codes if OTHER.read(code)] == []


def test_nothing_made_up_is_read() -> None:
    rng = random.Random(1)
    made_up = ("".join(rng.choices(ALPHABET, k=CODE_CHARACTERS)) for _ in range(20_000))
    assert [code for code in made_up if MAKER.read(code)] == []


@pytest.mark.parametrize(
    "characters",
    ["", "0", "0" * 15, "0" * 17, "O" * 16, "l" * 16, "7q4xm2n8rt9bhjwc", "７" * 16, "\ud800" * 16],
)
def test_what_is_not_sixteen_code_characters_is_not_read(characters: str) -> None:
    assert MAKER.read(characters) is None


@pytest.mark.parametrize(
    "identity",
    [
        CodeId(1 << RUN_BITS, 0, 0),
        CodeId(0, MAX_REQUESTS, 0),
        CodeId(0, 0, MAX_POSITIONS),
        CodeId(0, 0, -1),
    ],
)
def test_what_does_not_fit_is_refused_and_not_said_wrongly(identity: CodeId) -> None:
    with pytest.raises(ValueError, match="no code can say"):
        MAKER.make(identity)


def test_is_written_in_groups_of_four() -> None:
    assert written("7Q4XM2N8RT9BHJWC") == "KVC-7Q4X-M2N8-RT9B-HJWC"
    assert len(written("7Q4XM2N8RT9BHJWC")) == CANONICAL_LENGTH


def test_codes_of_neighbours_have_nothing_in_common() -> None:
    """Identities that differ in one bit agree where chance lets them: in one place of 32."""
    rng = random.Random(2)
    agreeing = places = 0
    for _ in range(300):
        packed = rng.getrandbits(52)
        left = MAKER.make(CodeId(packed >> 26, packed >> 12 & 0x3FFF, packed & 0xFFF))
        for bit in range(52):
            near = packed ^ 1 << bit
            right = MAKER.make(CodeId(near >> 26, near >> 12 & 0x3FFF, near & 0xFFF))
            agreeing += sum(a == b for a, b in zip(left, right, strict=True))
            places += CODE_CHARACTERS
    expected = places / 32
    assert abs(agreeing - expected) < 5 * expected**0.5


def test_every_character_is_as_likely_in_every_place() -> None:
    """One run's codes, numbered as they are, pass a chi-squared test in each of the sixteen places."""
    codes = [MAKER.make(CodeId(5, request, at)) for request in range(16) for at in range(1_024)]
    expected = len(codes) / len(ALPHABET)
    for place in range(CODE_CHARACTERS):
        counts = Counter(code[place] for code in codes)
        chi_squared = sum((counts[c] - expected) ** 2 / expected for c in ALPHABET)
        assert chi_squared < 80  # 31 degrees of freedom: exceeded once in 300,000


def test_no_two_codes_of_a_run_share_eight_characters_more_often_than_chance() -> None:
    codes = [MAKER.make(CodeId(6, request, at)) for request in range(4) for at in range(2_048)]
    parts = Counter(code[at : at + 8] for code in codes for at in range(9))
    pairs = sum(count * (count - 1) // 2 for count in parts.values())
    assert pairs <= 1  # 9 x 9 x 8,192^2 / 2 / 32^8 = 0.0025 expected


def test_tag_and_identity_tell_nothing_of_each_other() -> None:
    """Characters in different places agree once in 32, as independent ones do."""
    codes = [MAKER.make(CodeId(7, request, 0)) for request in range(MAX_REQUESTS)]
    for left, right in itertools.combinations(range(CODE_CHARACTERS), 2):
        equal = sum(code[left] == code[right] for code in codes)
        assert abs(equal - len(codes) / 32) < 5.5 * (len(codes) / 32) ** 0.5

"""One word is one token, codes break, and every text comes back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.lab import tokenizer as module
from kvcanary.lab.tokenizer import Special, special_mask
from tests.lab.talk import TOKENIZER, WORDS, plain

texts = st.lists(
    st.one_of(
        st.text(),
        st.sampled_from(WORDS[:50]),
        st.sampled_from([" ", "  ", ". ", "\n\n", "é", "漢字", "\U0001f600", "K7QA-9X"]),
    )
).map("".join)
check = settings(deadline=None, derandomize=True, max_examples=200)


@check
@given(texts)
def test_every_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.knows(ids)
    assert not special_mask(ids).any()
    assert (ids > 0).all()


@check
@given(texts, st.integers(1, 7))
def test_long_texts_are_cut_at_spaces_without_a_trace(text: str, size: int) -> None:
    whole = TOKENIZER.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SLICE_CHARS", size)
        assert np.array_equal(TOKENIZER.encode(text), whole)


@check
@given(texts)
def test_a_character_shows_once_all_its_bytes_are_there(text: str) -> None:
    decoder = TOKENIZER.decoder()
    parts = [decoder.push(id_) for id_ in TOKENIZER.encode(text).tolist()]
    assert "".join(parts) + decoder.flush() == text
    assert "\ufffd" not in "".join(parts).replace("\ufffd" if "\ufffd" in text else "", "")


def test_a_thousand_words_are_a_thousand_tokens() -> None:
    assert len(TOKENIZER.encode(plain(1000))) == 1000


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (" gate", [" gate"]),
        (" gate.", [" gate", "."]),
        (" K7QA9X", [" K7Q", "A9X"]),
        (" K7QA-9X.", [" K7Q", "A", "-", "9X", "."]),
        ("gate", ["gat", "e"]),
        (" Gate", [" Gat", "e"]),
        ("  gate ", [" ", " gate", " "]),
    ],
)
def test_what_is_no_word_breaks_in_pieces(text: str, pieces: list[str]) -> None:
    assert [TOKENIZER.token_bytes(i).decode() for i in TOKENIZER.encode(text).tolist()] == pieces


def test_codes_are_not_remembered() -> None:
    before = len(TOKENIZER._spaced)
    TOKENIZER.encode(" ".join(f"a K{number}X gate-{number}X" for number in range(10_000, 11_000)))
    assert len(TOKENIZER._spaced) == before


def test_half_a_character_and_a_lone_surrogate_do_not_raise() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode("\U0001f600")[:1]) == "\ufffd"
    assert "\ufffd" in TOKENIZER.decode(TOKENIZER.encode("a \ud800 b"))


def test_role_tags_have_no_text_and_ids_out_of_range_are_unknown() -> None:
    assert TOKENIZER.decode(np.array(list(Special), np.int32)) == ""
    for id_ in (0, -1, len(TOKENIZER.words) + 1, 2**31 - 1, max(Special) + 1):
        assert not TOKENIZER.knows(np.array([id_], np.int32))

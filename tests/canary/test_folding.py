"""Text as it comes back is folded into what can be compared."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.folding import fold, squash, words


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("\\u002d", "-"),
        ("\\u004B\\u0056\\u0043", "KVC"),
        ("a\\nb", "a b"),
        ('\\"a\\/b\\"', '"a/b"'),
        ("\\\\u002d", "-"),
        ("a\\\\\\nb", "a b"),
        ("\\u00", "\\u00"),
        ("\\x41", "\\x41"),
        ("\\", "\\"),
        ("\uff2b\uff36\uff23\uff0d\uff17", "KVC-7"),
        ("K\u200bV\u00ad\ufeffC", "KVC"),
        ("\\ud83d\\ude00", "\ud83d\ude00"),
    ],
)
def test_escapes_and_look_alikes_are_undone(text: str, folded: str) -> None:
    assert fold(text) == folded


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_folds_and_squashes(text: str) -> None:
    """Lone surrogates included."""
    folded = fold(text)
    assert squash(folded) == re.sub("[^0-9A-Z]", "", folded.upper())
    assert all(re.fullmatch("[a-z]+", word) for word in words(folded))


@given(st.text(alphabet=st.characters(max_codepoint=126, exclude_characters="\\")))
def test_plain_text_is_left_alone(text: str) -> None:
    assert fold(text) == text

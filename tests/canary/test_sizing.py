"""Lengths in tokens become shapes, exactly where a chapter is a whole number of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.prompt import MAX_CHAPTERS
from kvcanary.probing.sizing import Calibration, TooShort

bases = st.integers(1, 2_000)
chapters = st.integers(50, 2_000)


def calibrated(base: int, chapter: float) -> Calibration:
    return Calibration(base_tokens=base, chapter_tokens=chapter, fitted_tokens=base)


@given(bases, chapters, st.integers(0, 3_000_000))
def test_a_shape_has_exactly_the_tokens_asked_for(base: int, chapter: int, room: int) -> None:
    calibration = calibrated(base, chapter)
    shape = calibration.shape(base + room)
    assert calibration.predict(shape) == base + room
    assert shape.chapters_before - shape.chapters_after in (0, 1)
    assert shape.chapters <= MAX_CHAPTERS
    assert shape.pad_words < chapter or shape.chapters == MAX_CHAPTERS


@given(bases, st.floats(50, 2_000), st.integers(0, 3_000_000))
def test_a_chapter_of_any_size_is_met_to_the_token(base: int, chapter: float, room: int) -> None:
    """Padding is whole words, so a fit with fractions may be one token short, and never too long."""
    calibration = calibrated(base, chapter)
    assert calibration.predict(calibration.shape(base + room)) - (base + room) in (0, -1)


@given(bases, chapters, st.integers(1, 5_000))
def test_less_than_the_frame_is_too_short(base: int, chapter: int, short: int) -> None:
    with pytest.raises(TooShort):
        calibrated(base, chapter).shape(base - short)


@given(bases, chapters, st.integers(0, 2_000_000), st.integers(0, 2_000_000))
def test_what_is_longer_has_no_smaller_shape(base: int, chapter: int, a: int, b: int) -> None:
    calibration = calibrated(base, chapter)
    less, more = sorted((a, b))
    assert calibration.shape(base + less).chapters <= calibration.shape(base + more).chapters

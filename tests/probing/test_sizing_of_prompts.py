"""From tokens to a shape and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.canary.prompt import MAX_CHAPTERS, Shape
from kvcanary.probing.sizing import Calibration, TooShort, fit_first_token

calibrations = st.builds(
    Calibration,
    base_tokens=st.integers(1, 2_000),
    chapter_tokens=st.floats(50.0, 2_000.0),
    fitted_tokens=st.integers(2_000, 20_000),
)


@given(calibrations, st.integers(0, 2_000_000))
@settings(deadline=None, derandomize=True)
def test_the_shape_of_a_length_has_that_length(calibration: Calibration, tokens: int) -> None:
    if tokens < calibration.base_tokens:
        with pytest.raises(TooShort):
            calibration.shape(tokens)
        return
    shape = calibration.shape(tokens)
    assert 0 <= shape.chapters <= MAX_CHAPTERS
    assert shape.chapters_before - shape.chapters_after in (0, 1)
    assert tokens - 1 <= calibration.predict(shape) <= tokens
    if shape.chapters < MAX_CHAPTERS:
        assert 0 <= shape.pad_words <= calibration.chapter_tokens


@given(calibrations, st.integers(0, 2_000_000), st.integers(0, 100_000))
@settings(deadline=None, derandomize=True)
def test_uncertainty_grows_with_length(calibration: Calibration, tokens: int, more: int) -> None:
    assert 0 <= calibration.uncertainty(tokens) <= calibration.uncertainty(tokens + more)


def test_a_longer_count_refines_the_fit_and_an_absurd_one_does_not() -> None:
    calibration = Calibration(base_tokens=400, chapter_tokens=540.0, fitted_tokens=9_000)
    shape = Shape(50, 50, 10)
    better = calibration.refit(shape, 400 + 100 * 541 + 10)
    assert (better.chapter_tokens, better.fitted_tokens) == (541.0, 54_510)
    assert better.predict(shape) == 54_510
    for absurd in (1, 8_000, 30_000, 10**15):
        assert calibration.refit(shape, absurd) is calibration
    assert calibration.refit(Shape(0, 0, 9_999), 10_399) is calibration


def test_first_token_times_are_fitted_only_where_three_lengths_allow_it() -> None:
    line = [(tokens, 0.5 + tokens / 1e4) for tokens in (1_000, 2_000, 8_000)]
    assert fit_first_token(line[:2] * 3) is None
    fit = fit_first_token(line)
    assert fit is not None
    assert fit.seconds(100_000) == pytest.approx(10.5)
    assert fit.low_per_token_seconds <= fit.per_token_seconds <= fit.high_per_token_seconds
    falling = fit_first_token([(1, 3.0), (2, 2.0), (3, 1.0)])
    assert falling is not None
    assert falling.per_token_seconds == 0.0

"""Deadlines: as long as a request may take by the fit, and never longer than what was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from kvcanary.probing.deadlines import LEAST_SECONDS, deadline_seconds, due_seconds
from kvcanary.probing.sizing import Calibration, FirstToken

MOST = 900.0


def measured(seconds_a_token: float, output_seconds: float | None = 0.01) -> Calibration:
    """A fit through prompts of up to 20,000 tokens, whose slope may be twice what it says."""
    return Calibration(
        base_tokens=400,
        chapter_tokens=540.0,
        fitted_tokens=20_000,
        output_token_seconds=output_seconds,
        first_token=FirstToken(
            base_seconds=0.1,
            per_token_seconds=seconds_a_token,
            low_per_token_seconds=0.0,
            high_per_token_seconds=2 * seconds_a_token,
            longest_tokens=20_000,
            samples=5,
        ),
    )


UNTIMED = Calibration(base_tokens=400, chapter_tokens=540.0, fitted_tokens=20_000)
lengths = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=16)


def test_a_server_that_never_answers_a_short_prompt_costs_a_minute() -> None:
    assert deadline_seconds(measured(3e-5), [1_000], 160, MOST) < 1.2 * LEAST_SECONDS
    assert deadline_seconds(UNTIMED, [1_000], 160, MOST) == LEAST_SECONDS


@given(lengths, st.integers(1, 8_192), st.floats(1e-7, 1e-2))
def test_what_the_fit_allows_is_never_cut_off(
    queued: list[int], output: int, seconds_a_token: float
) -> None:
    """Prefill one after the other at the upper end of the interval, then the whole output."""
    deadline = deadline_seconds(measured(seconds_a_token), queued, output, MOST)
    takes = sum(0.1 + 2 * seconds_a_token * tokens for tokens in queued) + 0.01 * output
    assert min(MOST, takes) <= deadline <= MOST


@given(st.integers(20_000, 1_000_000), st.floats(1e-7, 1e-3))
def test_prefill_whose_cost_grows_with_the_square_is_never_cut_off(
    tokens: int, seconds_a_token: float
) -> None:
    """Nothing of it shows in the short prompts that the line was fitted to."""
    square = seconds_a_token * tokens * tokens / 20_000
    assert deadline_seconds(measured(seconds_a_token), [tokens], 1, MOST) >= min(MOST, square)


@given(lengths, st.integers(1, 8_192), st.floats(0.1, 2_000))
def test_never_longer_than_what_was_asked_for(queued: list[int], output: int, most: float) -> None:
    for calibration in (measured(1e-4), measured(1e-4, None), UNTIMED):
        assert 0 < deadline_seconds(calibration, queued, output, most) <= most


@given(lengths, lengths)
def test_more_in_the_queue_never_has_less_time(some: list[int], more: list[int]) -> None:
    calibration = measured(1e-5)
    less = deadline_seconds(calibration, some, 160, MOST)
    assert deadline_seconds(calibration, [*some, *more], 160, MOST) >= less


@given(lengths, st.integers(1, 8_192))
def test_what_has_its_time_by_the_fit_has_it_before_its_deadline(
    queued: list[int], output: int
) -> None:
    due = due_seconds(measured(1e-5), queued, output)
    assert due is not None
    assert due < deadline_seconds(measured(1e-5), queued, output, 1e9)
    assert due_seconds(UNTIMED, queued, output) is None


def test_what_is_long_and_untimed_has_all_there_is() -> None:
    assert deadline_seconds(UNTIMED, [20_001], 160, MOST) == MOST

"""Where nobody says how long prompts may be, and where soundness ends: found, within a bracket that is true."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.prompt import Position
from kvcanary.probing.boundary import ASKED, HALVINGS, bracket, narrow
from kvcanary.record.boundary import Boundary, Sign
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.claims import ExitCode
from tests.builders import calibration, exchange, readers
from tests.instrument.lab_runs import Ran, Setup, ran


def ladder(run: Ran) -> list[Exchange]:
    return run.sent(Purpose.LADDER)


def test_the_refusal_of_an_absurd_output_names_the_limit() -> None:
    run = ran(Setup(habits=("no-length",), promised=False, front_door_only=True))
    facts = run.record.facts
    assert facts
    assert (facts.context_tokens, facts.context_source) == (
        4_096,
        "named in the refusal of an absurd max_tokens",
    )
    assert [e.outcome for e in ladder(run)] == ["refused"]
    assert run.code is ExitCode.PASS


def test_without_a_word_it_is_the_longest_tested() -> None:
    """A server that cuts what is too long refuses nothing, and its own count gives it away."""
    run = ran(Setup(habits=("no-length", "auto-truncate"), promised=False, front_door_only=True))
    facts = run.record.facts
    assert facts
    assert facts.context_source == "the longest tested"
    assert len(ladder(run)) == 2, "one without end, and one that came back shorter"
    assert facts.context_tokens
    assert facts.context_tokens <= 4_096
    assert run.code is ExitCode.VIOLATION
    assert run.rules == {"accounting/usage"}


def test_workers_that_tell_their_context_need_no_ladder() -> None:
    run = ran(Setup(habits=("no-length",), promised=False))
    assert ladder(run) == []
    assert run.record.facts
    assert run.record.facts.context_tokens == 4_096


@pytest.mark.parametrize("seed", range(2))
def test_the_bracket_holds_the_limit_that_the_front_door_hides(seed: int) -> None:
    run = ran(Setup("glm-5.3", suite="check", front_door_only=True, seed=seed))
    found = run.record.boundary
    assert found
    limit = run.lab.prefill.pool.tokens - 7
    assert found.sound_tokens <= limit < found.lost_tokens
    assert found.lost_tokens - found.sound_tokens < 0.1 * limit


def test_where_the_limit_is_known_nothing_is_searched() -> None:
    run = ran(Setup("glm-5.3", suite="check"))
    assert run.record.boundary is None


@given(
    limit=st.integers(1_000, 100_000),
    span=st.tuples(st.integers(1, 50_000), st.integers(1, 50_000)),
    slips=st.lists(st.booleans(), min_size=HALVINGS * ASKED, max_size=HALVINGS * ASKED),
)
def test_a_model_that_slips_now_and_then_moves_no_boundary(
    limit: int, span: tuple[int, int], slips: Sequence[bool]
) -> None:
    """Never three times in a row; what was read from other people's pages is never kept."""
    below, above = span
    outset = Boundary(sound_tokens=max(1, limit - below), lost_tokens=limit + above)
    chances = iter(slips)
    row = 0

    async def ask(tokens: int) -> Exchange:
        nonlocal row
        slip = next(chances) and row < ASKED - 1
        row = row + 1 if slip else 0
        return exchange(1, tokens=tokens, lost=slip or tokens > limit)

    found = asyncio.run(narrow(outset, ask))
    assert outset.sound_tokens <= found.sound_tokens <= limit < found.lost_tokens
    assert found.lost_tokens <= outset.lost_tokens


@pytest.mark.parametrize("outcome", ["not_reached", "hung", "errored"])
def test_what_was_not_answered_narrows_nothing(outcome: str) -> None:
    outset = Boundary(sound_tokens=1_000, lost_tokens=2_000)
    asked: list[int] = []

    async def ask(tokens: int) -> Exchange:
        asked.append(tokens)
        return exchange(1, tokens=tokens, outcome=outcome)

    assert asyncio.run(narrow(outset, ask)) == outset
    assert asked == [1_500]


def test_a_refusal_is_above_the_boundary_and_is_asked_once() -> None:
    asked: list[int] = []

    async def ask(tokens: int) -> Exchange:
        asked.append(tokens)
        return exchange(1, tokens=tokens, planned_tokens=tokens, outcome="refused")

    found = asyncio.run(narrow(Boundary(sound_tokens=1_000, lost_tokens=2_000), ask))
    assert asked == [1_500, 1_250, 1_125]
    assert found == Boundary(sound_tokens=1_000, lost_tokens=1_125)


def test_what_is_only_refused_has_a_bracket_too() -> None:
    sent = [
        *calibration(0, 1, 2),
        *readers(10, "half", tokens=20_000),
        *readers(20, "edge", tokens=40_000, outcome="refused"),
    ]
    found = bracket(sent)
    assert found == Boundary(sound_tokens=20_000, lost_tokens=40_000, sign=Sign.REFUSAL)


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        (0.4, Boundary(sound_tokens=20_000, lost_tokens=40_000, sign=Sign.FIRST_TOKEN)),
        (2.0, None),
        (1.5, None),
    ],
)
def test_a_drop_in_first_token_time_is_a_boundary(seconds: float, found: Boundary | None) -> None:
    """Though every label came back: a longer prompt cannot be computed in less time."""
    sent = [
        *calibration(0, 1, 2, first_token_seconds=0.1),
        *readers(10, "half", tokens=20_000, first_token_seconds=1.0),
        *readers(20, "edge", tokens=40_000, first_token_seconds=seconds),
    ]
    assert bracket(sent) == found


def test_short_times_say_nothing() -> None:
    """Below half a second clocks and queues are louder than prefill."""
    sent = [
        *readers(10, "half", tokens=20_000, first_token_seconds=0.4),
        *readers(20, "edge", tokens=40_000, first_token_seconds=0.01),
    ]
    assert bracket(sent) is None


def test_the_front_door_s_own_limit_is_bracketed() -> None:
    """A patched deployment refuses what it cannot hold; nobody told where that begins."""
    run = ran(Setup("glm-5.3-patched", suite="check", front_door_only=True))
    found = run.record.boundary
    assert found
    assert found.sign is Sign.REFUSAL
    limit = run.lab.prefill.pool.tokens - 7
    assert found.sound_tokens <= limit < found.lost_tokens


def test_the_bracket_comes_from_the_strata() -> None:
    lost = set(Position)
    sent = [
        *calibration(0, 1, 2),
        *readers(10, "half", tokens=20_000),
        *readers(20, "edge", tokens=40_000, lost=lost),
        *(
            one
            for first in (30, 33, 36, 39)
            for one in readers(
                first, "edge", tokens=40_000, lost=lost, purpose=Purpose.CONFIRMATION
            )
        ),
        *readers(50, "control", tokens=8_000, purpose=Purpose.CONTROL),
    ]
    assert bracket(sent) == Boundary(sound_tokens=20_000, lost_tokens=40_000)
    assert bracket([e for e in sent if e.kept]) is None

"""Refusal, accounting, first token and availability."""

from typing import Any

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.detect import accounting, availability, bystanders, first_token, refusal
from kvcanary.record.exchange import Exchange, Purpose, Recall
from kvcanary.verdict.findings import Severity
from tests.builders import exchange, facts, readers, sound, worker

# refusal


def test_an_answer_over_the_limit_is_a_finding() -> None:
    limited = sound(prefill=8_007)
    assert limited.limit_tokens == 8_000
    for outcome in ("answered", "truncated"):
        (found,) = refusal.findings(readers(1, tokens=8_001, outcome=outcome), limited)
        assert (found.rule, found.exchanges) == ("refusal/answered-over-limit", (1, 2, 3))
        assert "8,000 tokens" in found.title


def test_a_refusal_over_the_limit_and_an_answer_at_it_are_not() -> None:
    limited = sound(prefill=8_007)
    assert refusal.findings(readers(1, tokens=8_000), limited) == ()
    assert refusal.findings(readers(1, tokens=9_000, outcome="refused"), limited) == ()
    assert refusal.findings(readers(1, tokens=9_000), facts()) == (), "no known limit"
    assert refusal.findings(readers(1, tokens=9_000), facts(worker(limit=None))) == ()


# accounting


@pytest.mark.parametrize(
    ("planned", "counted", "wrong"),
    [
        (10_000, 10_000, False),
        (10_000, 10_100, False),
        (10_000, 10_101, True),
        (10_000, 9_899, True),
        (1_000, 1_064, False),
        (1_000, 1_065, True),
        (700_000, 1, True),
        (None, 5, False),
        (10_000, None, False),
    ],
)
def test_prompt_tokens_that_do_not_fit(
    planned: int | None, counted: int | None, wrong: bool
) -> None:
    found = accounting.findings([exchange(1, planned_tokens=planned, prompt_tokens=counted)])
    assert bool(found) is wrong


def test_more_output_than_was_asked_for() -> None:
    assert accounting.findings([exchange(1, completion_tokens=160)]) == ()
    (found,) = accounting.findings([exchange(1, completion_tokens=161)])
    assert "asked for at most 160" in found.evidence[0]


def test_usage_is_told_once_with_its_strata() -> None:
    wrong = [exchange(n, group=g, prompt_tokens=1) for n, g in ((1, "a"), (2, "b"), (3, "a"))]
    (found,) = accounting.findings(wrong)
    assert (found.stratum, found.exchanges) == ("accounting", (1, 2, 3))
    assert "3 answers in `a` and `b`" in found.title
    assert "request 2 (`b`): usage says 1 prompt tokens" in found.evidence[1]
    (lone,) = accounting.findings(wrong[:1])
    assert (lone.stratum, "1 answer in `a`" in lone.title) == ("a", True)


# first token


def timed(first: int, seconds: float, **fields: Any) -> list[Exchange]:
    return readers(first, first_token_seconds=seconds, **fields)


CONTROL = timed(20, 10.0, group="control", purpose=Purpose.CONTROL)


def test_a_whole_stratum_before_its_prompts_can_have_been_read() -> None:
    (found,) = first_token.findings([*CONTROL, *timed(1, 1.0, tokens=12_000, lost=tuple(Position))])
    assert (found.rule, found.severity) == ("first-token/too-early", Severity.ACCOUNTING)
    assert "pace makes it 12.00 s" in found.evidence[0]


def test_one_honest_first_token_acquits_the_stratum() -> None:
    early = timed(1, 1.0, tokens=12_000, lost=tuple(Position))
    late = early[0].model_copy(update={"first_token_seconds": 9.0})
    assert first_token.findings([*CONTROL, late, *early[1:]]) == ()
    assert first_token.findings([*CONTROL, early[0]]) == (), "one is not enough"


def test_an_answer_that_kept_its_label_has_read_its_prompt() -> None:
    """However slow the control was: a machine may have been busy for as long as it took, and not since."""
    early = timed(1, 1.0, tokens=12_000, lost=tuple(Position))
    kept = early[0].model_copy(update={"recall": Recall.KEPT})
    assert first_token.findings([*CONTROL, kept, *early[1:]]) == ()


def test_a_control_that_had_to_wait_sets_no_pace() -> None:
    """Waiting is no prefill: the quickest control tells how long that takes at least."""
    quick, *waited = CONTROL
    quick = quick.model_copy(update={"first_token_seconds": 1.0})
    assert (
        first_token.findings([quick, *waited, *timed(1, 1.0, tokens=12_000, lost=tuple(Position))])
        == ()
    )


def test_cached_prompts_are_not_early() -> None:
    """A replay word for word hits the prefix cache."""
    assert (
        first_token.findings(
            [*CONTROL, *timed(1, 0.2, tokens=12_000, lost=tuple(Position), cached_tokens=11_900)]
        )
        == ()
    )
    cached = timed(20, 0.6, group="control", purpose=Purpose.CONTROL, cached_tokens=9_900)
    assert (
        first_token.findings([*cached, *timed(1, 8.0, tokens=12_000, lost=tuple(Position))]) == ()
    )


def test_short_prompts_and_quick_controls_are_not_judged() -> None:
    assert (
        first_token.findings([*CONTROL, *timed(1, 0.1, tokens=5_000, lost=tuple(Position))]) == ()
    )
    quick = timed(20, 0.4, group="control", purpose=Purpose.CONTROL)
    assert first_token.findings([*quick, *timed(1, 0.001, tokens=12_000)]) == ()
    assert first_token.findings(timed(1, 0.001)) == (), "no control"
    assert (
        first_token.findings(
            [*CONTROL, *timed(1, 1.0, lost=tuple(Position), purpose=Purpose.BYSTANDER)]
        )
        == ()
    )


# availability


@pytest.mark.parametrize("outcome", ["errored", "hung", "truncated"])
def test_two_failures_in_a_group_are_a_finding_one_is_a_warning(outcome: str) -> None:
    (one,) = availability.findings([*readers(1), exchange(9, outcome=outcome)], None)
    (two,) = availability.findings(
        [exchange(8, outcome=outcome), exchange(9, outcome=outcome)], None
    )
    assert (one.severity, two.severity) == (Severity.DEGRADED, Severity.AVAILABILITY)
    assert one.title.startswith("1 of 4 requests")


@pytest.mark.parametrize("outcome", ["answered", "refused", "aborted", "not_reached"])
def test_proxies_refusals_and_our_own_aborts_are_not_the_engine_s(outcome: str) -> None:
    assert availability.findings(readers(1, outcome=outcome), None) == ()


@pytest.mark.parametrize(
    "fields", [{"total_seconds": 30.0, "due_seconds": 40.0}, {"reason": "still_answering"}]
)
def test_a_deadline_of_our_own_that_was_too_short_accuses_nobody(fields: dict[str, Any]) -> None:
    """A slow machine, or ``--deadline``: it might have come."""
    hurried = [exchange(n, outcome="hung", **fields) for n in range(5)]
    (found,) = availability.findings(hurried, None)
    assert found.severity is Severity.DEGRADED
    assert "--deadline" in found.remedy
    beside = [e.model_copy(update={"purpose": Purpose.BYSTANDER}) for e in hurried]
    (found,) = bystanders.findings(beside)
    assert found.severity is Severity.DEGRADED
    due = [exchange(n, outcome="hung", total_seconds=41.0, due_seconds=40.0) for n in range(2)]
    (found,) = availability.findings([*hurried, *due], None)
    assert found.severity is Severity.AVAILABILITY


def test_hanging_over_the_limit_gets_its_own_advice() -> None:
    hung = [exchange(n, outcome="hung") for n in (1, 2)]
    (found,) = availability.findings(hung, 9_000)
    assert "refused at once with a 400" in found.remedy
    (found,) = availability.findings(hung, 11_000)
    assert "refused at once" not in found.remedy


def test_streams_that_a_proxy_cut_before_any_text_are_a_warning() -> None:
    cut = [
        exchange(n, outcome="truncated", reason="cut_before_text", tokens=50_000) for n in range(3)
    ]
    (found,) = availability.findings(cut, None)
    assert found.severity is Severity.DEGRADED
    (sure,) = availability.findings([e.model_copy(update={"reason": "cut"}) for e in cut], None)
    assert sure.severity is Severity.AVAILABILITY

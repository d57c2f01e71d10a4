"""Habits that real deployments have: none is a fault, and none may pass for what it hides."""

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.verdict.claims import ExitCode, Status
from kvcanary.verdict.findings import Severity
from tests.instrument.lab_runs import Setup, ran


def test_thinking_is_no_fault() -> None:
    """Nor are other manners of speaking: see the false alarms."""
    run = ran(Setup(habits=("thinks",)))
    assert run.accused == set()
    assert run.code is ExitCode.PASS


@pytest.mark.parametrize("habit", ["mute", "declines"])
def test_a_model_that_repeats_nothing_shows_nothing(habit: str) -> None:
    run = ran(Setup(habits=(habit,)))
    assert run.record.findings == ()
    assert run.code is ExitCode.INCONCLUSIVE
    assert "repeated none of its own labels" in run.verdict.headline


def test_a_model_that_forgets_is_not_corrupt_and_shows_nothing_of_what_it_forgot() -> None:
    run = ran(Setup(habits=("forgetful=1500",), suite="check"))
    assert run.accused == set()
    assert run.code is ExitCode.INCONCLUSIVE


def test_usage_that_is_hidden_leaves_no_length_to_speak_of() -> None:
    run = ran(Setup(habits=("no-usage",)))
    assert run.code is ExitCode.INCONCLUSIVE
    assert "reports no usage" in run.verdict.headline
    assert run.record.findings == ()


@pytest.mark.parametrize(
    ("habit", "words"),
    [
        ("fallback=other@800", "another model"),
        ("response-cache", "response cache"),
        ("restart-after=10", "configuration"),
        ("version-change-after=9", "configuration"),
        ("version-change-after=16", "changed during the run"),
    ],
)
def test_who_answered_is_named_where_it_was_not_one_deployment(habit: str, words: str) -> None:
    """Seen from the front door alone: nobody else may tell."""
    run = ran(Setup(habits=(habit,), front_door_only=True))
    assert run.accused == set()
    assert run.code is ExitCode.INCONCLUSIVE
    assert run.claim("ownership").status is Status.INCONCLUSIVE
    assert words in run.verdict.headline


@pytest.mark.parametrize(
    ("habit", "stream", "reasons"),
    [
        ("max-body=8000", True, {"http_413"}),
        ("tpm=9000", True, {"rate_limited"}),
        ("proxy-timeout=0.02", False, {"http_504"}),
    ],
)
def test_what_a_gateway_kept_was_not_reached(habit: str, stream: bool, reasons: set[str]) -> None:
    run = ran(Setup(habits=(habit,), stream=stream))
    kept = {e.reason for e in run.record.exchanges if e.outcome == "not_reached"}
    assert kept == reasons
    assert run.accused == set()
    assert run.code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("scenario", ["healthy", "glm-5.3-patched"])
def test_a_server_that_cuts_prompts_does_not_pass_for_more_than_it_read(scenario: str) -> None:
    """The promise is twice what the workers hold; the front door alone does not tell."""
    run = ran(
        Setup(
            scenario, ("auto-truncate",), claimed_context=8_192, front_door_only=True, suite="check"
        )
    )
    assert run.code is ExitCode.VIOLATION
    assert "accounting/usage" in run.rules
    if scenario == "healthy":
        assert Severity.LEAK not in run.accused


@pytest.mark.parametrize("habit", ["chatter", "quote", "copy-error=0.03"])
def test_no_manner_of_speaking_hides_the_incident(habit: str) -> None:
    run = ran(Setup("glm-5.3", (habit,), suite="check", front_door_only=True))
    assert Severity.CORRUPTION in run.accused
    assert run.code is ExitCode.VIOLATION


@pytest.mark.parametrize(("habit", "most"), [("mute", 20), ("copy-error=0.03", 30)])
def test_a_label_that_slipped_is_asked_again_and_one_that_never_comes_is_not(
    habit: str, most: int
) -> None:
    run = ran(Setup(habits=(habit,), only_plan=True, seed=88))
    short = run.sent("calibration")
    assert len(short) <= most
    positions = {e.asked for e in short if e.kept}
    assert positions == (set() if habit == "mute" else set(Position))

"""What no answer showed was not shown, however well the rest went."""

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.claims import ClaimName, ExitCode
from kvcanary.verdict.judge import judge, unshown
from tests.builders import calibration, decoys, healthy, readers

START, MIDDLE, END = Position.START, Position.MIDDLE, Position.END


def forgetful(lost: set[Position]) -> list[Exchange]:
    """A model that slips often in good conditions, so that its losses at length are no corruption."""
    slips = [*calibration(0, 1, 2), *calibration(3, 4, 5, lost=True), *calibration(6, 7, 8)]
    return [
        *slips,
        *readers(20, "control", tokens=8_000, purpose=Purpose.CONTROL),
        *readers(10, "edge", tokens=65_000, lost=lost),
        *readers(30, "edge", tokens=65_000, lost=lost, purpose=Purpose.CONFIRMATION),
        *decoys(),
    ]


@pytest.mark.parametrize("lost", [{START}, {MIDDLE}, {START, MIDDLE}])
def test_a_part_that_no_answer_showed_is_no_pass(lost: set[Position]) -> None:
    run = healthy(exchanges=forgetful(lost))
    judged = judge(run, (ClaimName.OWNERSHIP,))
    assert judged.verdict.exit_code is ExitCode.INCONCLUSIVE
    assert "`edge`" in judged.verdict.headline
    ((group, positions),) = unshown(run.exchanges)
    assert group.name == "edge"
    assert set(positions) == lost


def test_one_answer_that_kept_it_is_enough() -> None:
    confirmed = readers(30, "edge", tokens=65_000, purpose=Purpose.CONFIRMATION)
    lost = [e for e in forgetful({START}) if e.purpose is not Purpose.CONFIRMATION]
    run = healthy(exchanges=[*lost, *confirmed])
    assert unshown(run.exchanges) == ()
    assert judge(run, (ClaimName.OWNERSHIP,)).verdict.exit_code is ExitCode.PASS


def test_what_was_not_asked_is_not_missed() -> None:
    """A budget may buy one request of a length: it is asked for its end, and the pass says no more."""
    only_end = [e for e in healthy().exchanges if e.group != "edge" or e.asked is END]
    assert unshown(only_end) == ()
    run = healthy(exchanges=only_end)
    assert judge(run, (ClaimName.OWNERSHIP,)).verdict.exit_code is ExitCode.PASS

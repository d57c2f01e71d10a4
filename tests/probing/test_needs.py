"""A probe whose needs are not met is skipped, with the reason, and nothing that it supports passes."""

import pytest

from kvcanary.deployment.facts import Role
from kvcanary.probing.grammar import load_probe
from kvcanary.probing.needs import Need, Situation, unmet
from kvcanary.probing.plan import make_plan
from kvcanary.probing.sizing import Calibration
from kvcanary.record.run import PlanNote, UnmetNeed
from kvcanary.verdict.claims import ClaimName, Status
from kvcanary.verdict.judge import judge
from tests.builders import facts, healthy, sound, worker

USUAL = Calibration(base_tokens=430, chapter_tokens=540.0, fitted_tokens=9_000)
EVERYTHING = Situation(sound(), streaming=True, pairs=4, counted=True, keys=2, adapters=1)
NOTHING = Situation(
    facts(worker(Role.DECODE, None, limit=None, context=None)), streaming=False, keys=0
)


@pytest.mark.parametrize("need", list(Need))
def test_each_need_is_met_or_its_absence_is_told(need: Need) -> None:
    assert need.meaning
    assert unmet("mine", [need], EVERYTHING) == ()
    (missing,) = unmet("mine", [need], NOTHING)
    assert (missing.probe, missing.need) == ("mine", need.value)
    assert missing.reason


def test_what_has_nothing_to_test_is_not_applicable() -> None:
    one = Situation(sound(), pairs=1, counted=True, keys=1)
    needs = [Need.SEVERAL_KEYS, Need.SEVERAL_WORKERS]
    assert [u.applicable for u in unmet("mine", needs, one)] == [False, False]
    assert unmet("mine", [Need.SEVERAL_WORKERS], NOTHING)[0].applicable, "unknown is not none"


def test_the_planner_leaves_it_out_and_says_why() -> None:
    probes = [load_probe("oversize"), load_probe("aborts")]
    whole = Situation(sound(), streaming=False)
    plan = make_plan(probes, sound(), 65_536, USUAL, 4, 0, situation=whole)
    assert not any(stage.group.startswith("aborts/") for stage in plan.stages)
    assert [u.probe for u in plan.unmet] == ["aborts"]
    assert any("probe aborts: needs streaming" in note for note in plan.skipped)


@pytest.mark.parametrize("applicable", [True, False])
def test_no_claim_passes_on_what_was_not_run(applicable: bool) -> None:
    missing = UnmetNeed(
        probe="aborts", need="streaming", reason="answers are not streamed", applicable=applicable
    )
    note = PlanNote(
        first_number=0,
        stages=(),
        requests=0,
        prompt_tokens=0,
        seconds=None,
        skipped=(),
        unmet=(missing,),
    )
    claims = {c.name: c for c in judge(healthy(plan=note), ()).verdict.claims}
    ownership = claims[ClaimName.OWNERSHIP]
    assert ownership.status is (Status.INCONCLUSIVE if applicable else Status.PASS)
    if applicable:
        assert "`aborts` was not run" in ownership.text
        assert claims[ClaimName.ISOLATION].status is Status.INCONCLUSIVE

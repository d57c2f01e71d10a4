"""A plan sends calibration and no more, and what it says it will cost is what a run then sends."""

from pathlib import Path

import pytest

from kvcanary.probing.buying import Budget
from kvcanary.record.exchange import DECOYS, Exchange, Purpose
from kvcanary.verdict.claims import ExitCode
from tests.cli.command import kvcanary
from tests.instrument.lab_runs import Ran, Setup, finished, ran, run_in

CALIBRATION = {Purpose.CALIBRATION, Purpose.LADDER, *DECOYS}


def requests_seen(run: Ran) -> set[str]:
    """Names of the requests that any worker of the lab saw."""
    truth = run.lab.truth
    names = [f"kvc-{run.record.info.run:07x}-{number:04d}" for number in range(200)]
    again = [f"{name}-2" for name in names]  # a prompt that is sent twice
    return {name for name in (*names, *again) if truth.route(name)}


@pytest.mark.parametrize("scenario", ["healthy", "glm-5.3"])
def test_a_plan_sends_nothing_but_calibration(scenario: str) -> None:
    run = ran(Setup(scenario, suite="check", only_plan=True))
    assert {e.purpose for e in run.record.exchanges} <= CALIBRATION
    simulated = {f"kvc-{run.record.info.run:07x}-{s.number:04d}" for s in run.record.simulations}
    assert requests_seen(run) == {e.name for e in run.record.exchanges} | simulated
    assert sum(e.length_tokens for e in run.record.exchanges) < 4_096
    assert run.record.verdict is None
    assert run.record.plan
    assert run.record.plan.requests


def test_offline_contacts_nobody(tmp_path: Path) -> None:
    """The host does not exist; asking it would be an error."""
    target = "https://nobody.invalid/v1"
    ended = kvcanary(tmp_path, "plan", target, "--offline", "--context", "1048576")
    assert ended.code == 0
    assert "Nothing was measured" in ended.out
    assert not (tmp_path / "state" / "runs").exists()
    asked = kvcanary(tmp_path, "plan", target, "--context", "1048576", "--model", "m")
    assert asked.code == 2


def test_offline_keeps_to_the_suite_s_own_budget(tmp_path: Path) -> None:
    """``smoke`` may spend 150,000 tokens whatever the context."""
    whole = ("plan", "https://nobody.invalid/v1", "--offline", "--context", "4096")
    ended = kvcanary(tmp_path, *whole, "--suite", "smoke", "--tokens", "1000")
    assert "beyond the budget" in ended.out
    own = tmp_path / "small.yaml"
    own.write_text("id: small\ntitle: t\nprobes: [short]\nrequires: [ownership]\ntokens: 1000\n")
    ended = kvcanary(tmp_path, *whole, "--suite", str(own))
    assert "beyond the budget" in ended.out


def bought(run: Ran) -> list[Exchange]:
    """What the plan paid for: all but calibration, and the confirmations that come on top."""
    return [
        e for e in run.record.exchanges if e.purpose not in CALIBRATION | {Purpose.CONFIRMATION}
    ]


@pytest.mark.parametrize("budget", [None, 20_000])
def test_what_is_sent_is_what_was_priced(budget: int | None) -> None:
    run = ran(Setup(suite="check", budget=Budget(tokens=budget)))
    plan = run.record.plan
    assert plan
    sent = bought(run)
    assert len(sent) == plan.requests
    tokens = sum(e.prompt_tokens or e.planned_tokens or 0 for e in sent)
    assert tokens == pytest.approx(plan.prompt_tokens, rel=0.01)
    assert budget is None or plan.prompt_tokens <= budget
    if budget:
        assert any("beyond the budget" in note for note in plan.skipped)


def test_a_plan_and_the_run_after_it_agree() -> None:
    async def both() -> tuple[int, int]:
        async with (planning := Setup(suite="check", only_plan=True)).lab() as lab:
            first = await run_in(lab, planning)
            second = await run_in(lab, Setup(suite="check"))
        assert first.plan
        assert second.plan
        return first.plan.prompt_tokens, second.plan.prompt_tokens

    one, other = finished(both())
    assert one == pytest.approx(other, rel=0.01)


def test_nothing_that_fits_the_budget_is_inconclusive_not_a_pass() -> None:
    run = ran(Setup(budget=Budget(tokens=1)))
    assert run.code is ExitCode.INCONCLUSIVE
    assert "beyond the budget" in run.verdict.headline
    assert bought(run) == []

"""What a judged record says of one claim and of one probe."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.probing.grammar import Probe, load_probe
from kvcanary.pytest_plugin.outcome import Kind, Outcome, of_claim, of_probe
from kvcanary.record.exchange import Purpose
from kvcanary.record.run import PlanNote, RunRecord, UnmetNeed
from kvcanary.verdict.claims import Claim, ClaimName, ExitCode, Status, Verdict
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import exchange, finding, healthy, readers, record

PATH = "/state/runs/x.jsonl"
OVERSIZE = load_probe("oversize")
CLAIMS = (ClaimName.OWNERSHIP,)


def judged(run: RunRecord, *required: ClaimName) -> RunRecord:
    found = judge(run, required or CLAIMS)
    return run.model_copy(update={"findings": found.findings, "verdict": found.verdict})


def planned(*unmet: UnmetNeed, skipped: tuple[str, ...] = ()) -> PlanNote:
    return PlanNote(
        first_number=10,
        stages=(),
        requests=0,
        prompt_tokens=0,
        seconds=None,
        skipped=skipped,
        unmet=unmet,
    )


def with_verdict(code: ExitCode, status: Status, claims: tuple[Claim, ...]) -> RunRecord:
    verdict = Verdict(
        status=status,
        exit_code=code,
        headline="said",
        claims=claims,
        strata=(),
        decoys_sent=0,
        decoys_seen=0,
    )
    return healthy(verdict=verdict)


def green(outcomes: list[Outcome]) -> bool:
    return all(o.kind in (Kind.PASSED, Kind.SKIPPED) for o in outcomes)


@given(
    st.tuples(*(st.tuples(st.sampled_from(Status), st.booleans()) for _ in ClaimName)),
    st.booleans(),
)
def test_the_claims_are_green_exactly_when_the_command_exits_0(
    statuses: tuple[tuple[Status, bool], ...], sound: bool
) -> None:
    claims = tuple(
        Claim(name=name, status=status, required=required or name is ClaimName.OWNERSHIP, text="x")
        for name, (status, required) in zip(ClaimName, statuses, strict=True)
    )
    failed = any(c.status is Status.FAIL for c in claims)
    short = any(c.required and c.status is Status.INCONCLUSIVE for c in claims) or not sound
    code = ExitCode.VIOLATION if failed else ExitCode.INCONCLUSIVE if short else ExitCode.PASS
    run = with_verdict(code, Status.PASS, claims)
    assert green([of_claim(run, name, PATH) for name in ClaimName]) == (code == 0)


def test_a_passing_claim_says_what_it_is_worth() -> None:
    run = judged(healthy())
    outcome = of_claim(run, ClaimName.OWNERSHIP, PATH)
    assert outcome.kind is Kind.PASSED
    assert "up to 65,000 tokens" in outcome.text


def test_a_failing_claim_names_its_findings_and_how_to_replay_them() -> None:
    run = judged(healthy())
    assert run.verdict
    claims = tuple(
        c.model_copy(update={"status": Status.FAIL}) if c.name is ClaimName.ISOLATION else c
        for c in run.verdict.claims
    )
    verdict = run.verdict.model_copy(update={"claims": claims})
    failing = run.model_copy(update={"verdict": verdict, "findings": (finding(),)})
    outcome = of_claim(failing, ClaimName.ISOLATION, PATH)
    assert outcome.kind is Kind.FAILED
    assert "F1 leak" in outcome.text
    assert f"kvcanary replay {PATH} F1" in outcome.text
    assert "what to do: Isolate the deployment." in outcome.text


def test_a_claim_that_is_not_required_and_not_shown_is_skipped() -> None:
    run = judged(healthy())
    outcome = of_claim(run, ClaimName.REFUSAL, PATH)
    assert outcome.kind is Kind.SKIPPED
    assert "not required" in outcome.text


def test_a_probe_passes_with_the_answers_of_its_strata() -> None:
    outcome = of_probe(judged(healthy()), OVERSIZE, PATH)
    assert outcome.kind is Kind.PASSED
    assert "edge" in outcome.text
    assert "3 of 3 kept their labels" in outcome.text


def test_a_probe_fails_with_what_was_found_in_its_exchanges_only() -> None:
    other = readers(30, "others", probe="ladder")
    run = judged(healthy())
    run = run.model_copy(update={"exchanges": (*run.exchanges, *other)})
    for numbers, kind in (((10,), Kind.FAILED), ((30,), Kind.PASSED), ((30, 12), Kind.FAILED)):
        found = run.model_copy(update={"findings": (finding(exchanges=numbers),)})
        outcome = of_probe(found, OVERSIZE, PATH)
        assert outcome.kind is kind, numbers
        assert ("request 10 holds a whole code" in outcome.text) == (kind is Kind.FAILED)


@pytest.mark.parametrize(
    "harmless", [{"severity": Severity.DEGRADED}, {"waived": "until 2026-12-31: known"}]
)
def test_a_warning_and_a_waived_finding_fail_no_probe(harmless: dict[str, Any]) -> None:
    run = judged(healthy()).model_copy(update={"findings": (finding(**harmless),)})
    assert of_probe(run, OVERSIZE, PATH).kind is Kind.PASSED


def unsent(probe: Probe = OVERSIZE, **fields: Any) -> Outcome:
    """Of a run in which nothing of the probe was sent."""
    run = healthy()
    others = tuple(e.model_copy(update={"probe": "ladder"}) for e in run.exchanges)
    return of_probe(judged(run.model_copy(update={"exchanges": others, **fields})), probe, PATH)


def test_a_probe_that_has_nothing_to_test_here_is_skipped_with_the_reason() -> None:
    need = UnmetNeed(
        probe="oversize", need="several-workers", reason="there is one", applicable=False
    )
    outcome = unsent(plan=planned(need))
    assert outcome == Outcome(
        Kind.SKIPPED, "probe oversize does not apply: it needs several-workers, and there is one"
    )


def test_a_probe_whose_needs_are_not_met_is_inconclusive_as_the_run_is() -> None:
    need = UnmetNeed(probe="oversize", need="metrics", reason="none is told", applicable=True)
    outcome = unsent(plan=planned(need))
    assert outcome.kind is Kind.INCONCLUSIVE
    assert "it needs metrics, and none is told" in outcome.text


def test_a_probe_that_the_budget_left_out_is_skipped_only_where_the_run_passes_without_it() -> None:
    note = planned(skipped=("window: 3 of its requests are beyond the budget", "rung: 1 of them"))
    outcome = unsent(plan=note)
    assert outcome.kind is Kind.SKIPPED
    assert "window: 3 of its requests" in outcome.text
    assert "rung" not in outcome.text
    outcome = unsent(plan=note, stopped="the deployment went away")
    assert outcome.kind is Kind.INCONCLUSIVE
    assert "the deployment went away" in outcome.text


def test_a_probe_whose_requests_were_never_answered_does_not_pass() -> None:
    silent = [exchange(n, outcome="hang", reason="deadline") for n in (10, 11, 12)]
    outcome = of_probe(judged(record(*silent)), OVERSIZE, PATH)
    assert outcome.kind is Kind.INCONCLUSIVE
    assert outcome.text.startswith("inconclusive: probe oversize was not measured")


def test_bystanders_alone_measure_no_probe() -> None:
    run = healthy()
    beside = tuple(e.model_copy(update={"purpose": Purpose.BYSTANDER}) for e in run.exchanges)
    outcome = of_probe(judged(run.model_copy(update={"exchanges": beside})), OVERSIZE, PATH)
    assert outcome.kind is Kind.INCONCLUSIVE


def test_a_probe_without_traffic_is_judged_by_the_figures() -> None:
    run = judged(healthy(), ClaimName.CAPACITY)
    assert of_probe(run, load_probe("contract"), PATH) == of_claim(run, ClaimName.CAPACITY, PATH)

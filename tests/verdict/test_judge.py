"""From a record to claims and exit code: nothing unmeasured passes, whatever went wrong."""

import itertools
from collections.abc import Sequence

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.deployment.facts import Role
from kvcanary.record.exchange import Exchange, Nulls, Purpose
from kvcanary.record.meeting import Pair, Topology
from kvcanary.record.run import HighWater, RunRecord
from kvcanary.verdict import judge as module
from kvcanary.verdict.claims import Claim, ClaimName, ExitCode, Status
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import Judged, judge
from tests.builders import (
    calibration,
    decoys,
    exchange,
    facts,
    foreign,
    healthy,
    info,
    readers,
    simulations,
    worker,
)

REQUIRED = (ClaimName.OWNERSHIP, ClaimName.ISOLATION)
WATER = HighWater(tokens=97_000, how="measured")


def claims(judged: Judged) -> dict[str, str]:
    return {c.name.value: c.status.value for c in judged.verdict.claims}


def good(**fields: object) -> RunRecord:
    return healthy(high_water=WATER, **fields)


def without(record: RunRecord, *purposes: Purpose) -> RunRecord:
    kept = tuple(e for e in record.exchanges if e.purpose not in purposes)
    return record.model_copy(update={"exchanges": kept})


def changed(record: RunRecord, purposes: Sequence[Purpose], **fields: object) -> RunRecord:
    return record.model_copy(
        update={
            "exchanges": tuple(
                Exchange.model_validate({**e.model_dump(), **fields})
                if e.purpose in purposes
                else e
                for e in record.exchanges
            )
        }
    )


def test_a_good_run_passes_and_states_its_power() -> None:
    judged = judge(good(), REQUIRED)
    assert judged.findings == ()
    assert judged.verdict.exit_code is ExitCode.PASS
    assert claims(judged) == {
        "ownership": "pass",
        "isolation": "pass",
        "capacity": "pass",
        "refusal": "inconclusive",
        "accounting": "pass",
    }
    assert "up to 65,000 of 65,536 promised tokens" in judged.verdict.headline
    assert "`edge` (chat, streaming): 0 of 3 bad" in judged.verdict.headline
    assert "below 63%" in judged.verdict.headline
    (edge,) = (s for s in judged.verdict.strata if s.name == "edge")
    assert (edge.measured, edge.lost, edge.foreign, edge.exposure) == (3, 0, 0, "measured")
    assert edge.exposed_tokens == 97_000 + 65_000 - 100_000


# nothing unmeasured passes: each of these takes one thing away from a good run

DECOYS = (Purpose.DECOY_BEFORE, Purpose.DECOY_AFTER)
UNREAD = {"outcome": "not_reached", "recall": "not read", "answer_characters": 0}
TAKEN_AWAY = {
    "nothing sent": good(exchanges=()),
    "stopped": good(stopped="The server went away."),
    "only calibration": without(good(), Purpose.READER, Purpose.CONTROL, *DECOYS),
    "no readers and no control": without(good(), Purpose.READER, Purpose.CONTROL),
    "no decoys": without(good(), *DECOYS),
    "no decoy after": without(good(), Purpose.DECOY_AFTER),
    "decoys unseen": changed(good(), DECOYS, decoy_seen=False),
    "decoy after unseen": changed(good(), (Purpose.DECOY_AFTER,), decoy_seen=False),
    "readers not reached": changed(good(), (Purpose.READER,), **UNREAD),
    "control not reached": changed(good(), (Purpose.CONTROL,), **UNREAD),
    "model recalls nothing": changed(good(), tuple(Purpose), recall="lost"),
    "answers too large": changed(
        good(), (Purpose.READER,), nulls=Nulls(complete=False).model_dump()
    ),
}


@pytest.mark.parametrize("record", TAKEN_AWAY.values(), ids=TAKEN_AWAY)
def test_what_was_not_measured_never_passes(record: RunRecord) -> None:
    verdict = judge(record, REQUIRED).verdict
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.exit_code is ExitCode.INCONCLUSIVE
    assert verdict.headline


@pytest.mark.parametrize("required", [(), *((name,) for name in ClaimName), tuple(ClaimName)])
@pytest.mark.parametrize("taken", ["nothing sent", "stopped"])
def test_an_empty_or_stopped_run_is_inconclusive_whatever_is_required(
    taken: str, required: tuple[ClaimName, ...]
) -> None:
    """Capacity comes from facts alone: it must not carry a run in which nothing was sent."""
    verdict = judge(TAKEN_AWAY[taken], required).verdict
    assert verdict.exit_code is ExitCode.INCONCLUSIVE
    assert verdict.headline


@pytest.mark.parametrize("required", [(name,) for name in ClaimName])
def test_every_single_requirement_can_be_judged(required: tuple[ClaimName, ...]) -> None:
    verdict = judge(good(), required).verdict
    expected = ExitCode.INCONCLUSIVE if required == (ClaimName.REFUSAL,) else ExitCode.PASS
    assert verdict.exit_code is expected
    compared_nothing = without(good(), Purpose.READER, Purpose.CONTROL)
    assert judge(compared_nothing, required).verdict.headline


def test_a_pass_names_the_parts_that_nobody_was_asked_for() -> None:
    run = healthy()
    few = [e for e in run.exchanges if e.group != "edge" or e.asked is Position.END]
    found = judge(run.model_copy(update={"exchanges": tuple(few)}), (ClaimName.OWNERSHIP,))
    assert claims(found)["ownership"] == "pass"
    text = next(c.text for c in found.verdict.claims if c.name is ClaimName.OWNERSHIP)
    assert "in `edge` none was asked for the label at its start or middle" in text
    whole = judge(run, (ClaimName.OWNERSHIP,)).verdict.claims
    assert not any("none was asked" in c.text for c in whole)


def test_one_long_answer_that_did_not_come_leaves_ownership_open() -> None:
    lost = [
        e if e.number != 12 else exchange(12, tokens=65_000, outcome="hung")
        for e in good().exchanges
    ]
    ownership = claims(judge(good(exchanges=lost), REQUIRED))["ownership"]
    assert ownership == "inconclusive"


def test_every_transfer_hit_calibration_included_is_no_pass() -> None:
    """The worst deployment of all: nothing it says comes from its own pages."""
    sent = [
        *calibration(0, 1, 2, lost=True),
        *readers(10, lost=set(Position)),
        *readers(20, "control", purpose=Purpose.CONTROL, lost=set(Position)),
        *decoys(decoy_seen=False, lost=True),
    ]
    judged = judge(good(exchanges=sent), REQUIRED)
    assert judged.verdict.exit_code is ExitCode.INCONCLUSIVE
    assert "repeated none of its own labels" in judged.verdict.headline
    speaking = [
        e.model_copy(update={"foreign": (foreign(),)}) if e.number == 10 else e for e in sent
    ]
    assert judge(good(exchanges=speaking), REQUIRED).verdict.exit_code is ExitCode.VIOLATION


# failures


def test_a_leak_fails_the_run_even_when_nothing_else_could_be_measured() -> None:
    leaking = exchange(10, foreign=(foreign(),), outcome="truncated", answer_characters=30)
    for stopped in (None, "interrupted"):
        judged = judge(good(exchanges=[leaking], stopped=stopped), REQUIRED)
        assert judged.verdict.exit_code is ExitCode.VIOLATION
        assert judged.verdict.headline == judged.findings[0].title
        assert claims(judged)["isolation"] == "fail"


def test_findings_come_worst_first() -> None:
    short = facts(worker(Role.PREFILL, 20_007), worker(Role.DECODE))
    lost = readers(10, "edge", tokens=64_000, lost=set(Position))
    lost += [
        exchange(
            30 + i,
            tokens=64_000,
            lost=True,
            asked=Position.END,
            purpose=Purpose.CONFIRMATION,
        )
        for i in range(4)
    ]
    lost[0] = lost[0].model_copy(update={"foreign": (foreign(),)})
    sent = [
        *calibration(*range(9)),
        *lost,
        *readers(20, "control", purpose=Purpose.CONTROL, tokens=19_000),
    ]
    judged = judge(good(exchanges=[*sent, *decoys()], facts=short), REQUIRED)
    severities = [f.severity for f in judged.findings]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[:3] == [Severity.LEAK, Severity.CORRUPTION, Severity.CAPACITY]
    assert "refusal/answered-over-limit" in {f.rule for f in judged.findings}
    assert claims(judged) == dict.fromkeys(
        ("ownership", "isolation", "capacity", "refusal"), "fail"
    ) | {"accounting": "pass"}


@pytest.mark.parametrize(
    ("record", "claim"),
    [
        (good(facts=facts(worker(Role.PREFILL, 60_000), worker(Role.DECODE))), "capacity"),
        (changed(good(), (Purpose.CONTROL,), prompt_tokens=5), "accounting"),
        (
            good(facts=facts(worker(Role.PREFILL, 70_000, limit=9_000), worker(Role.DECODE))),
            "refusal",
        ),
    ],
)
def test_a_claim_that_fails_fails_the_run_required_or_not(record: RunRecord, claim: str) -> None:
    judged = judge(record, REQUIRED)
    assert claims(judged)[claim] == "fail"
    assert judged.verdict.exit_code is ExitCode.VIOLATION


def test_clean_refusals_over_a_limit_pass() -> None:
    limited = facts(worker(Role.PREFILL, 70_000, limit=9_000), worker(Role.DECODE))
    judged = judge(
        changed(good(facts=limited), (Purpose.READER,), outcome="refused", recall="not read"),
        REQUIRED,
    )
    assert claims(judged)["refusal"] == "pass"
    some = [e for e in good().exchanges if e.number != 12] + [
        exchange(12, tokens=65_000, outcome="not_reached")
    ]
    refused = [
        e.model_copy(update={"outcome": "refused"}) if e.number in (10, 11) else e for e in some
    ]
    judged = judge(good(facts=limited, exchanges=refused), REQUIRED)
    assert claims(judged)["refusal"] == "inconclusive"


def test_an_unverified_code_blocks_nobody() -> None:
    """Or anybody could stop a roll-out by pasting one."""
    pasted = changed(good(), (Purpose.READER,), nulls=Nulls(unverified_codes=1).model_dump())
    judged = judge(pasted, REQUIRED)
    assert [f.rule for f in judged.findings] == ["isolation/unverified-code"]
    assert judged.verdict.exit_code is ExitCode.PASS


def test_a_lone_warning_leaves_its_claim_open() -> None:
    hung = [
        *good().exchanges,
        exchange(77, group="control", purpose=Purpose.CONTROL, outcome="hung"),
    ]
    judged = judge(good(exchanges=hung), (ClaimName.REFUSAL,))
    assert claims(judged)["refusal"] == "inconclusive"
    assert judged.verdict.exit_code is ExitCode.INCONCLUSIVE


def test_unknown_capacity_is_not_assessed_and_says_how() -> None:
    judged = judge(good(facts=facts()), (ClaimName.CAPACITY,))
    (capacity,) = (c for c in judged.verdict.claims if c.name is ClaimName.CAPACITY)
    assert capacity.status is Status.INCONCLUSIVE
    assert "/server_info" in capacity.text
    assert judged.verdict.exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("statuses", list(itertools.product(Status, repeat=3)))
@pytest.mark.parametrize("required", list(itertools.product((True, False), repeat=3)))
@pytest.mark.parametrize("sound", [True, False])
def test_the_exit_code_for_every_combination(
    statuses: tuple[Status, ...], required: tuple[bool, ...], *, sound: bool
) -> None:
    made = [
        Claim(name=name, status=status, required=needed, text="")
        for name, status, needed in zip(ClaimName, statuses, required, strict=False)
    ]
    status, code = module._conclude(made, sound=sound)
    needed = [s for s, r in zip(statuses, required, strict=True) if r]
    if Status.FAIL in statuses:
        assert (status, code) == (Status.FAIL, ExitCode.VIOLATION)
    elif sound and needed and all(s is Status.PASS for s in needed):
        assert (status, code) == (Status.PASS, ExitCode.PASS)
    else:
        assert (status, code) == (Status.INCONCLUSIVE, ExitCode.INCONCLUSIVE)


def test_judging_again_from_the_written_record_gives_the_same() -> None:
    for record in (good(), *TAKEN_AWAY.values()):
        again = RunRecord.model_validate_json(record.model_dump_json())
        assert judge(again, REQUIRED) == judge(record, REQUIRED)


def test_a_run_without_a_reader_is_no_pass_however_sound_its_control() -> None:
    """A budget that bought only control and fill tested nothing."""
    verdict = judge(without(good(), Purpose.READER), REQUIRED).verdict
    assert verdict.exit_code is ExitCode.INCONCLUSIVE
    assert "budget" in verdict.headline


def test_a_run_whose_readers_were_all_refused_within_the_promise_fails_on_capacity() -> None:
    refused = {"outcome": "refused", "recall": "not read", "prompt_tokens": None, "status": 400}
    judged = judge(
        changed(good(windows=()), [Purpose.READER], **refused, answer_characters=0), REQUIRED
    )
    assert [f.rule for f in judged.findings] == ["capacity/refused-within-promise"]
    assert judged.verdict.exit_code is ExitCode.VIOLATION
    assert claims(judged)["ownership"] == "inconclusive"


@pytest.mark.parametrize("simulated", [(), simulations(0)], ids=["none sent", "none recognised"])
def test_isolation_needs_a_simulated_leak_that_was_recognised(simulated: object) -> None:
    judged = judge(good(simulations=simulated), REQUIRED)
    assert claims(judged)["isolation"] == "inconclusive"
    assert claims(judged)["ownership"] == "pass"
    why = "this model gives nothing away" if simulated else "no simulated leak was answered"
    assert judged.verdict.headline.startswith(why)


def test_the_leak_rate_is_discounted_by_the_simulated_leaks_that_were_missed() -> None:
    """Exact on both sides: 6 answers in the worst stratum, 8 simulated leaks of which one may be missed."""
    few = judge(good(simulations=simulations(8, 8)), REQUIRED).verdict.headline
    assert "bad answers below 63%, of leaks not bounded by so few answers at 95 %" in few
    many = good(exchanges=[*good().exchanges, *readers(40), *readers(50), *readers(60, "control")])
    for seen, most in ((8, "73%"), (7, "97%")):
        run = many.model_copy(update={"simulations": simulations(seen, 8)})
        assert f"of leaks below {most}" in judge(run, REQUIRED).verdict.headline


def test_a_bound_that_a_suite_asks_for_has_to_be_reached_by_both_claims() -> None:
    record = good(info=info(bound=0.7), simulations=simulations(8, 8))
    judged = judge(record, REQUIRED)
    assert claims(judged)["ownership"] == "pass"
    assert claims(judged)["isolation"] == "inconclusive"
    tighter = judge(good(info=info(bound=0.5)), REQUIRED)
    assert claims(tighter)["ownership"] == "inconclusive"


@pytest.mark.parametrize(
    ("met", "said"),
    [
        (("P1-D1", "P1-D2", "P1-D2"), "worst stratum `edge`, P1-D1 (chat, streaming): 0 of 1 bad"),
        (("P1-D1", "P1-D1", "P1-D2"), "worst stratum `edge`, P1-D2 (chat, streaming): 0 of 1 bad"),
    ],
)
def test_the_headline_names_the_pair_of_workers_that_its_bound_is_of(
    met: tuple[str, ...], said: str
) -> None:
    run = good(topology=Topology(prefill=("P1",), decode=("D1", "D2"), visible=True))
    pairs = iter(met)
    sent = tuple(
        e.model_copy(update={"met": Pair(prefill="P1", decode=next(pairs)[3:])})
        if e.group == "edge"
        else e
        for e in run.exchanges
    )
    headline = judge(run.model_copy(update={"exchanges": sent}), (ClaimName.OWNERSHIP,)).verdict
    assert said in headline.headline
    assert "rate of bad answers below 95%" in headline.headline
    assert "worst stratum `edge` (chat" in judge(good(), REQUIRED).verdict.headline

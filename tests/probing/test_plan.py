"""The planner: whatever a deployment says of itself, lengths that fit and a pool that is never overfilled."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.canary.prompt import MAX_CHAPTERS
from kvcanary.deployment.facts import Facts, Role
from kvcanary.errors import ConfigError
from kvcanary.probing.buying import NO_LIMIT, Budget, buy, plan_price
from kvcanary.probing.grammar import Abort, Fill, Probe, Read, Together, Wait, load_probe
from kvcanary.probing.plan import make_plan, replay_plan
from kvcanary.probing.planned import Plan, Planned, Stage
from kvcanary.probing.planner import USABLE_POOL
from kvcanary.probing.roles import FIRST_VICTIM, MAX_VICTIMS, TENANTS
from kvcanary.probing.sizing import Calibration, FirstToken
from kvcanary.record.exchange import Purpose
from tests.builders import exchange, facts, readers, worker

OVERSIZE = load_probe("oversize")
USUAL = Calibration(base_tokens=430, chapter_tokens=540.0, fitted_tokens=9_000)


def planned(
    deployment: Facts,
    context: int | None = None,
    calibration: Calibration = USUAL,
    concurrency: int = 4,
    probe: Probe = OVERSIZE,
) -> Plan:
    promised = context or deployment.context_tokens
    assert promised
    return make_plan([probe], deployment, promised, calibration, concurrency, 5)


def stages(plan: Plan) -> dict[str, Stage]:
    return {stage.group: stage for stage in plan.stages}


def incident(prefill: int = 681_280, context: int = 1_048_576) -> Facts:
    return facts(
        worker(Role.PREFILL, prefill, context=context),
        worker(Role.DECODE, 2_043_904, context=context),
        context=context,
    )


def test_the_incident_fill_window_edge_control() -> None:
    plan = stages(planned(incident()))
    assert list(plan) == ["victims", "window", "edge", "control"]
    limit = 681_280 - 7
    assert all(
        e.tokens > limit
        for g in ("window", "edge")
        for e in plan[g].exchanges
        if e.purpose is Purpose.READER
    )
    assert all(e.tokens <= limit for g in ("victims", "control") for e in plan[g].exchanges)
    assert {e.asked for e in plan["window"].exchanges if e.purpose is Purpose.READER} == {
        "start",
        "middle",
        "end",
    }
    held = sum(e.tokens + e.max_tokens for e in plan["victims"].exchanges)
    assert 0.9 * 2_043_904 < held <= USABLE_POOL * 2_043_904
    assert plan["victims"].hold
    assert plan["victims"].in_flight == len(plan["victims"].exchanges)


def test_pools_that_hold_the_context_are_tested_on_the_way_up() -> None:
    plan = stages(planned(incident(prefill=2_043_904)))
    assert list(plan) == ["victims", "half", "three-quarters", "edge", "control"]


def test_the_front_door_alone_is_tested_too() -> None:
    plan = planned(facts(context=1_048_576))
    assert [s.group for s in plan.stages] == [
        "victims",
        "half",
        "three-quarters",
        "edge",
        "control",
    ]
    assert plan.skipped == ()


def test_readers_victims_and_bystanders_are_different_tenants() -> None:
    plan = planned(incident())
    tenants: dict[Purpose, set[int]] = {}
    for e in plan.exchanges:
        tenants.setdefault(e.purpose, set()).add(e.tenant)
    assert not tenants[Purpose.FILL] & tenants[Purpose.READER]
    assert not tenants[Purpose.BYSTANDER] & (tenants[Purpose.FILL] | tenants[Purpose.READER])
    assert max(tenants[Purpose.FILL]) < TENANTS == FIRST_VICTIM + MAX_VICTIMS


def test_a_context_beyond_the_longest_prompt_is_said_to_be() -> None:
    huge = 50_000_000
    plan = planned(facts(context=huge))
    most = USUAL.base_tokens + MAX_CHAPTERS * USUAL.chapter_tokens
    assert max(e.tokens for e in plan.exchanges) <= most
    assert any("edge: 49," in note and "the longest canary prompt" in note for note in plan.skipped)


@pytest.mark.parametrize("context", [600, 700, 1_000, 4_096])
def test_small_contexts_plan_what_fits_and_name_the_rest(context: int) -> None:
    plan = planned(facts(context=context))
    groups = {s.group for s in plan.stages}
    named = {note.partition(":")[0] for note in plan.skipped}
    assert groups | named >= {"victims", "half", "three-quarters", "edge", "control"}
    assert not (groups - {"bystanders"}) & {n for n in named if "no room" in n}


pools = st.one_of(st.none(), st.integers(0, 3_000_000))


@st.composite
def deployments(draw: st.DrawFn) -> Facts:
    context = draw(st.integers(512, 2_000_000))
    workers = []
    for role in draw(st.lists(st.sampled_from(list(Role)), max_size=4)):
        pool = draw(pools)
        limit = draw(st.one_of(st.none(), st.integers(-1, 2_100_000)))
        page = draw(st.sampled_from([None, 1, 16, 64, 256, 4_096]))
        workers.append(worker(role, pool, limit=limit, page_tokens=page, context=context))
    return facts(*workers, context=context)


@st.composite
def calibrations(draw: st.DrawFn, context: int) -> Calibration:
    base = draw(st.integers(1, max(1, context - 96)))
    return Calibration(
        base_tokens=base,
        chapter_tokens=draw(st.floats(1.0, 5_000.0)),
        fitted_tokens=draw(st.integers(base, max(base, 20_000))),
    )


@given(st.data(), st.integers(1, 256))
@settings(deadline=None, derandomize=True, max_examples=600)
def test_any_facts_give_a_plan_that_fits(data: st.DataObject, concurrency: int) -> None:
    deployment = data.draw(deployments())
    context = deployment.context_tokens
    assert context
    calibration = data.draw(calibrations(context))
    plan = planned(deployment, calibration=calibration, concurrency=concurrency)
    assert plan == planned(deployment, calibration=calibration, concurrency=concurrency), (
        "no chance"
    )
    numbers = [e.number for e in plan.exchanges]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers, default=5) >= 5
    for e in plan.exchanges:
        assert 0 <= e.tenant < TENANTS
        assert calibration.base_tokens <= e.tokens
        assert e.tokens + e.max_tokens <= context
        assert e.max_tokens >= 1
        calibration.shape(e.tokens)
    pool = deployment.decode_pool_tokens
    for stage in plan.stages:
        assert stage.exchanges
        assert stage.in_flight >= 1
        assert stage.hold or stage.in_flight <= max(1, concurrency - len(_bystanders(stage)))
        beside = sum(e.tokens + e.max_tokens for e in _bystanders(stage))
        readers = [e for e in stage.exchanges if e.purpose is not Purpose.BYSTANDER]
        sizes = sorted((e.tokens + e.max_tokens for e in readers), reverse=True)
        if pool and stage.in_flight > 1:
            assert sum(sizes[: stage.in_flight]) + beside <= USABLE_POOL * pool + 1


def _bystanders(stage: Stage) -> list[Planned]:
    return [e for e in stage.exchanges if e.purpose is Purpose.BYSTANDER]


expressions = st.sampled_from(
    ["reach", "0", "1e15", "context * 1000", "pool", "limit", "page", "decode.pool - pool", "2 * context",
     "first_known(pool, 7)", "window", "reach - context", "1 / page"]
)  # fmt: skip


@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=400)
def test_any_probe_is_planned_or_explained(data: st.DataObject) -> None:
    deployment = data.draw(deployments())
    fill = Fill(
        do="fill", group="v", tokens=data.draw(expressions), longest=data.draw(expressions),
        output=data.draw(st.integers(16, 8_192)),
    )  # fmt: skip
    read = Read(
        do="read", group="r", tokens=data.draw(expressions), when=data.draw(expressions),
        count=data.draw(st.integers(1, 64)), bystanders=data.draw(st.integers(0, 16)),
    )  # fmt: skip
    probe = OVERSIZE.model_copy(update={"steps": (fill, read)})
    try:
        plan = planned(deployment, probe=probe)
    except ConfigError:
        return  # 1e999, or a division by a page of 0
    most = USUAL.base_tokens + MAX_CHAPTERS * USUAL.chapter_tokens
    for e in plan.exchanges:
        assert USUAL.base_tokens <= e.tokens <= most
        assert e.tenant < TENANTS


def test_a_replay_has_the_same_text_in_the_same_order() -> None:
    victims = [
        exchange(n, group="victims", purpose=Purpose.FILL, tenant=6 + n, chapters_before=9)
        for n in range(3)
    ]
    sent = [*readers(10, "window"), *victims, *readers(20, "control", purpose=Purpose.CONTROL)]
    plan = replay_plan(sent, 4)
    assert [s.group for s in plan.stages] == ["victims", "window", "control"]
    assert [s.hold for s in plan.stages] == [True, False, False]
    for e, again in zip(sorted(sent, key=lambda e: e.number), plan.exchanges, strict=True):
        assert again.shape is not None
        assert (e.number, e.tenant, e.asked) == (again.number, again.tenant, again.asked)
        assert (e.chapters_before, e.chapters_after, e.pad_words) == (
            again.shape.chapters_before, again.shape.chapters_after, again.shape.pad_words
        )  # fmt: skip


def test_a_replay_overfills_no_pool_either() -> None:
    sent = readers(10, tokens=400_000)
    assert replay_plan(sent, 4).stages[0].in_flight == 4
    assert replay_plan(sent, 4, 1_000_000).stages[0].in_flight == 2
    assert replay_plan(sent, 4, 100_000).stages[0].in_flight == 1


TIMED = USUAL.model_copy(
    update={
        "first_token": FirstToken(
            base_seconds=0.1,
            per_token_seconds=1e-5,
            low_per_token_seconds=0.0,
            high_per_token_seconds=2e-5,
            longest_tokens=9_000,
            samples=5,
        )
    }
)


def reads(group: str, tokens: str, count: int = 3) -> Read:
    return Read(do="read", group=group, tokens=tokens, count=count)


@given(st.data(), st.integers(1, 64))
@settings(max_examples=200)
def test_what_is_sent_together_fits_into_the_pool_together(
    data: st.DataObject, concurrency: int
) -> None:
    lengths = st.sampled_from(["reach", "reach / 2", "reach / 7", "pool / 3"])
    steps = tuple(reads(f"g{n}", data.draw(lengths)) for n in range(data.draw(st.integers(2, 4))))
    probe = OVERSIZE.model_copy(update={"steps": (Together(do="together", steps=steps),)})
    deployment = data.draw(deployments())
    plan = planned(deployment, probe=probe, concurrency=concurrency)
    named = {note.partition(":")[0] for note in plan.skipped}
    assert {s.group for s in plan.stages} | named == {step.group for step in steps}
    assert len({s.together for s in plan.stages}) <= 1
    pool = deployment.decode_pool_tokens
    at_once = sum(
        sum(sorted((e.tokens + e.max_tokens for e in s.exchanges), reverse=True)[: s.in_flight])
        for s in plan.stages
    )
    assert not pool or len(plan.stages) == 1 or at_once <= USABLE_POOL * pool + 1


def test_a_dropped_prompt_goes_before_each_reader_and_they_are_bought_together() -> None:
    step = Abort(do="abort", group="after", tokens="reach / 4", at=(0.5, "first token"))
    probe = OVERSIZE.model_copy(update={"steps": (step, Wait(do="wait", seconds=5))})
    plan = planned(incident(), probe=probe, calibration=TIMED)
    (aborts, wait) = plan.stages
    assert [(e.purpose, e.drop_at) for e in aborts.exchanges] == [
        (Purpose.DROPPED, 0.5),
        (Purpose.READER, None),
        (Purpose.DROPPED, "first token"),
        (Purpose.READER, None),
    ]
    assert aborts.in_flight == 1
    assert len({e.tokens for e in aborts.exchanges}) == 1
    assert (wait.exchanges, wait.wait and wait.wait.seconds) == ((), 5)
    half = buy(plan, Budget(tokens=3 * aborts.exchanges[0].tokens), TIMED)
    assert [e.number for e in half.exchanges] == [e.number for e in aborts.exchanges[:2]]
    assert half.stages[-1].wait, "a wait costs no tokens"
    assert "after: 1 of its requests" in half.skipped[-1]
    seconds = plan_price(plan, TIMED, NO_LIMIT).seconds
    assert seconds
    assert seconds > 5


def test_without_a_first_token_nothing_can_be_dropped_in_time() -> None:
    step = Abort(do="abort", group="after", tokens="reach / 4")
    probe = OVERSIZE.model_copy(update={"steps": (step,)})
    plan = planned(incident(), probe=probe)
    assert plan.stages == ()
    assert plan.skipped == ("after: how long a first token takes is unknown",)

"""The runner without a network: what it sends, what it stops, what it keeps to, by rule-made answers."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.canary.prompt import CanaryPrompt
from kvcanary.deployment.facts import Role
from kvcanary.probing.buying import Budget
from kvcanary.probing.courier import Limits
from kvcanary.probing.endpoint import Request
from kvcanary.record.exchange import Exchange, Purpose
from tests.builders import facts, worker
from tests.probing.offline import Rule, own_label, ran_offline

CONTEXT = 16_384
FACTS = facts(
    worker(Role.PREFILL, 100_000, context=CONTEXT),
    worker(Role.DECODE, 100_000, context=CONTEXT),
    context=CONTEXT,
)
LIMITS = Limits(concurrency=3, deadline_seconds=900.0)
STOPPING = Limits(concurrency=3, deadline_seconds=900.0, stop_when_proven=True)


def long_words(request: Request) -> int:
    """Words of a prompt that is one of the probe's longest; else 0."""
    text = request.text
    return text.words if isinstance(text, CanaryPrompt) and text.words > CONTEXT // 3 else 0


def readers(exchanges: list[Exchange]) -> list[Exchange]:
    return [e for e in exchanges if e.purpose is Purpose.READER]


def test_an_honest_run_comes_to_its_end(tmp_path: Path) -> None:
    ended = ran_offline(tmp_path, own_label, FACTS, LIMITS)
    assert ended.stopped is None
    assert {e.outcome for e in ended.exchanges} == {"answered"}
    assert all(e.kept for e in readers(ended.exchanges))
    assert ended.exchanges[-1].purpose is Purpose.DECOY_AFTER


def leaking() -> Rule:
    """The first long answer waits for ever, the second says what stands in the first's prompt."""
    seen: list[CanaryPrompt] = []

    def answer(request: Request) -> str | None:
        if not long_words(request):
            return own_label(request)
        assert isinstance(request.text, CanaryPrompt)
        seen.append(request.text)
        return None if len(seen) == 1 else seen[0].label(seen[0].asked)

    return answer


def test_a_proven_leak_ends_the_stage_and_what_is_in_flight_is_recorded(tmp_path: Path) -> None:
    ended = ran_offline(tmp_path, leaking(), FACTS, STOPPING)
    assert ended.stopped
    assert "was proven" in ended.stopped
    sent = readers(ended.exchanges)
    assert "aborted" in {e.outcome for e in sent}, "the one in flight was let go of"
    assert any(e.foreign for e in sent)
    assert not any(e.purpose is Purpose.DECOY_AFTER for e in ended.exchanges)


def forgetting(request: Request) -> str | None:
    """Long prompts lose their labels and nobody else's text comes."""
    return "I see no such label here." if long_words(request) else own_label(request)


def test_corruption_is_confirmed_at_once_and_ends_the_run(tmp_path: Path) -> None:
    ended = ran_offline(tmp_path, forgetting, FACTS, STOPPING)
    assert ended.stopped
    assert "was proven" in ended.stopped
    purposes = [e.purpose for e in ended.exchanges]
    assert Purpose.CONFIRMATION in purposes
    assert Purpose.DECOY_AFTER not in purposes, "what would have followed was not sent"


@pytest.mark.parametrize("rule", [leaking, lambda: forgetting])
def test_other_suites_finish(rule: object, tmp_path: Path) -> None:
    assert callable(rule)
    made = rule()

    def answer(request: Request) -> str | None:
        return made(request) or "nothing"

    ended = ran_offline(tmp_path, answer, FACTS, LIMITS)
    assert ended.stopped is None
    purposes = [e.purpose for e in ended.exchanges]
    assert Purpose.CONTROL in purposes
    assert purposes[-1] is Purpose.DECOY_AFTER


def test_short_prompts_have_short_deadlines(tmp_path: Path) -> None:
    """All but the first requests, which may have to wait for a model to load."""
    ended = ran_offline(tmp_path, own_label, FACTS, LIMITS)
    assert ended.stopped is None
    assert ended.exchanges
    assert max(ended.deadlines.values()) < 130
    after = [e for e in ended.exchanges if e.purpose is not Purpose.CALIBRATION]
    assert all(ended.deadlines[e.name] < 70 for e in after)


def test_a_server_that_stops_answering_is_not_asked_for_decoys_again(tmp_path: Path) -> None:
    def answer(request: Request) -> str | None:
        text = request.text
        honest = isinstance(text, CanaryPrompt) and not text.decoy
        return own_label(request) if honest else None

    ended = ran_offline(tmp_path, answer, FACTS, LIMITS)
    assert ended.stopped is None
    decoys = [e for e in ended.exchanges if e.purpose is Purpose.DECOY_BEFORE]
    assert [e.outcome for e in decoys] == ["hung"]
    assert len(ended.record.simulations) == 1


def slipping(seed: int, often: float) -> Rule:
    """Loses a label now and then."""
    chance = random.Random(seed)
    return lambda request: "" if chance.random() < often else own_label(request)


@settings(max_examples=25)
@given(
    tokens=st.none() | st.integers(1, 200_000),
    seed=st.integers(0, 99),
    often=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    stop=st.booleans(),
    limits_known=st.booleans(),
)
def test_no_more_is_sent_than_the_plan_says(
    tokens: int | None, seed: int, often: float, stop: bool, limits_known: bool
) -> None:
    limits = Limits(
        concurrency=3,
        deadline_seconds=900.0,
        budget=Budget(tokens=tokens),
        stop_when_proven=stop,
    )
    deployment = FACTS if limits_known else facts(context=CONTEXT)
    with TemporaryDirectory() as folder:
        ended = ran_offline(Path(folder), slipping(seed, often), deployment, limits)
    record = ended.record
    if record.plan is None:
        assert ended.stopped
        return
    most = record.plan.most_prompt_tokens
    assert most
    sent = sum(e.length_tokens for e in ended.exchanges)
    assert sent + sum(s.prompt_tokens for s in record.simulations) <= most
    assert tokens is None or most <= max(tokens, record.plan.overhead[0].prompt_tokens)


@pytest.mark.parametrize("sent", range(8))
def test_a_run_that_goes_on_drops_a_prompt_before_each_reader_again(
    sent: int, tmp_path: Path
) -> None:
    """Wherever it was cut off: a reader that nothing was dropped for would tell nothing."""
    whole = ran_offline(tmp_path, own_label, FACTS, LIMITS, "aborts").record
    others = [e for e in whole.exchanges if e.purpose not in (Purpose.DROPPED, Purpose.READER)]
    pairs = [e for e in whole.exchanges if e.purpose in (Purpose.DROPPED, Purpose.READER)]
    kept = [e for e in others if e.purpose is not Purpose.DECOY_AFTER] + pairs[:sent]
    cut = whole.model_copy(update={"exchanges": tuple(kept)})
    ended = ran_offline(tmp_path, own_label, FACTS, LIMITS, "aborts", cut)
    assert len(readers(ended.exchanges)) == len(pairs) // 2
    dropped = {e.number for e in ended.exchanges if e.purpose is Purpose.DROPPED}
    assert all(e.number - 1 in dropped for e in readers(ended.exchanges))


@pytest.mark.parametrize("a_minute", [None, 1_500, 3_000])
def test_calibration_sends_nothing_longer_than_a_key_s_minute(
    a_minute: int | None, tmp_path: Path
) -> None:
    """A gateway would refuse it for ever; two lengths are enough to know what a chapter costs."""
    budget = Budget(tokens_per_minute=a_minute)
    limits = Limits(concurrency=3, deadline_seconds=900.0, budget=budget)
    ended = ran_offline(tmp_path, own_label, facts(context=262_144), limits)
    sent = [e for e in ended.exchanges if e.purpose is Purpose.CALIBRATION]
    longest = max(e.length_tokens + e.max_tokens for e in sent)
    assert longest <= a_minute if a_minute else longest > 10_000

"""Every fault goes off, does what it says and nothing at rate 0, the same each time, and beside others."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from kvcanary.errors import UsageError
from kvcanary.lab import (
    ChosenFault,
    ExchangeTruth,
    FaultKey,
    Scenario,
    faults,
    read_truth,
    with_fault,
    write_truth,
)
from kvcanary.lab.chances import Chances
from kvcanary.lab.harm import Ledger
from kvcanary.lab.room import End
from tests.lab.busy import brief, busy, small
from tests.lab.stage import Stage, on_stage, stage
from tests.lab.talk import CODE_CHARS, WORDS, run

MECHANISMS = {
    "rejection-not-terminal",
    "freed-too-early",
    "success-without-coverage",
    "read-before-ready",
    "slot-reuse",
    "wrong-cache-key",
    "page-boundary",
    "row-or-rank-mix-up",
    "preempt-resume",
    "capacity-contract",
    "resource-leak",
    "gateway-mix-up",
    "no-isolation-by-design",
}
BEHIND_THE_GATEWAY = [f.key for f in faults() if f.mechanism != "gateway-mix-up"]
SILENT = {FaultKey.CACHE_COLLIDES, FaultKey.FROZEN_RANKS, FaultKey.HOST_MEMORY_LOST}
"""What one busy hour does not show in any answer; `test_lab_fault_effects` does."""

Hour = tuple[list[tuple[str, End | None]], list[ExchangeTruth]]


def hour(scenario: Scenario) -> Hour:
    """One busy hour: all answers, and what really happened."""

    async def play(stage: Stage) -> Hour:
        return await busy(stage), list(stage.deployment.truth.ledger)

    return on_stage(scenario, play)


# -- the catalogue ---------------------------------------------------------------------------------


def test_every_key_has_its_fault_and_every_fault_its_words() -> None:
    known = list(faults())
    assert [fault.key for fault in known] == list(FaultKey)
    for fault in known:
        assert fault.mechanism in MECHANISMS
        assert fault.references
        for text in (fault.where, fault.wrong, fault.needs, fault.caller_sees, fault.check_says):
            assert text == text.strip()
            assert len(text) > 5
        assert 0 < fault.usual_rate <= 1
    assert {fault.mechanism for fault in known} == MECHANISMS


def test_a_fault_is_chosen_with_rate_and_condition() -> None:
    def chosen(text: str) -> ChosenFault:
        return with_fault(small(), text).faults[-1]

    key = FaultKey.NOTHING_SENT
    assert chosen("nothing-sent").above_tokens == small().context_tokens // 4
    assert chosen("head-missing") == ChosenFault(FaultKey.HEAD_MISSING, 1.0)
    key = FaultKey.HEAD_MISSING
    assert chosen("head-missing:0.25") == ChosenFault(key, 0.25)
    assert chosen("head-missing:1/3") == ChosenFault(key, every=3)
    assert chosen("head-missing@500") == ChosenFault(key, above_tokens=500)
    assert chosen("head-missing:0.5@7") == ChosenFault(key, 0.5, above_tokens=7)
    assert chosen("truncated-head").above_tokens == small().context_tokens // 2
    assert chosen("truncated-head@9").above_tokens == 9
    both = with_fault(with_fault(small(), "late-write"), "slot-reuse")
    assert [fault.key for fault in both.faults] == ["late-write", "slot-reuse"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing-send", "did you mean 'nothing-sent'"),
        ("zzz", "lab list --faults"),
        ("", "there is no fault ''"),
        ("late-write:2", "a rate is a number from 0 to 1, or 1/K, not '2'"),
        ("late-write:nan", "a rate is"),
        ("late-write:1/0", "a rate is"),
        ("late-write:", "a rate is"),
        ("late-write@", "behind @ stands a number"),
        ("late-write@-1", "behind @ stands a number"),
    ],
)
def test_what_is_no_fault_is_answered_with_what_is(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        with_fault(small(), text)


def test_a_fault_is_chosen_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        with_fault(with_fault(small(), "late-write"), "late-write:0.5")


# -- chances ---------------------------------------------------------------------------------------


def chances(*chosen: ChosenFault, seed: int = 0) -> tuple[Chances, Ledger]:
    ledger = Ledger()
    return Chances(chosen, seed=seed, ledger=ledger), ledger


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3, 0.9, 1.0])
def test_a_fault_goes_off_at_its_rate_and_the_truth_knows_when(rate: float) -> None:
    at_work, ledger = chances(ChosenFault(FaultKey.LATE_WRITE, rate))
    struck = [at_work.strikes(FaultKey.LATE_WRITE, f"r{n}") for n in range(4_000)]
    assert abs(sum(struck) / 4_000 - rate) < 5 * (rate * (1 - rate) / 4_000) ** 0.5 + 1e-9
    assert [x.request for x in ledger] == [f"r{n}" for n, hit in enumerate(struck) if hit]
    assert all(x.hit_by("late-write") and not x.sound for x in ledger)


def test_every_third_opportunity_is_every_third() -> None:
    at_work, _ = chances(ChosenFault(FaultKey.LATE_WRITE, every=3))
    struck = [at_work.strikes(FaultKey.LATE_WRITE, "r") for _ in range(9)]
    assert struck == [False, False, True] * 3


def test_lengths_that_are_spared_are_no_opportunity() -> None:
    at_work, _ = chances(ChosenFault(FaultKey.LATE_WRITE, every=2, above_tokens=100))
    lengths = [100, 101, 50, 102, 101]
    struck = [at_work.strikes(FaultKey.LATE_WRITE, "r", tokens) for tokens in lengths]
    assert struck == [False, False, False, True, False]
    assert at_work.strikes(FaultKey.LATE_WRITE, "r")  # a length that cannot be known


def test_draws_depend_on_the_seed_and_the_fault_and_not_on_names() -> None:
    def draws(seed: int, key: FaultKey, name: str) -> list[bool]:
        at_work, _ = chances(ChosenFault(key, 0.5), seed=seed)
        return [at_work.strikes(key, name) for _ in range(64)]

    one = draws(1, FaultKey.LATE_WRITE, "a")
    assert one == draws(1, FaultKey.LATE_WRITE, "b")
    assert one != draws(2, FaultKey.LATE_WRITE, "a")
    assert one != draws(1, FaultKey.SLOT_REUSE, "a")


def test_a_fault_that_was_not_chosen_never_goes_off() -> None:
    at_work, ledger = chances()
    assert not any(at_work.strikes(key, "r") or at_work.has(key) for key in FaultKey)
    assert not list(ledger)


def test_the_truth_survives_its_file(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.seen("a", 300)
    ledger.looked("a", 12)
    ledger.looked("a", 3)
    ledger.struck("b", "late-write")
    ledger.reached("a", "late-write")
    write_truth(tmp_path / "truth.jsonl", ledger)
    assert read_truth(tmp_path / "truth.jsonl") == (
        ExchangeTruth("a", 300, (), ("late-write",), 12, looked=True),
        ExchangeTruth("b", None, ("late-write",), (), 0, looked=False),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["truth.jsonl"]


# -- on a deployment -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", BEHIND_THE_GATEWAY)
def test_a_fault_changes_answers_where_it_goes_off_and_nothing_at_rate_0(key: FaultKey) -> None:
    sound, truth = hour(with_fault(small(), f"{key}:0"))
    assert all(exchange.sound for exchange in truth)
    assert all(end is not None for _, end in sound)
    wrong, truth = hour(with_fault(small(), f"{key}:1"))
    assert any(exchange.hit_by(key) for exchange in truth)
    if key not in SILENT:
        assert wrong != sound


def crowded(rate: float) -> Scenario:
    """Many faults at once, those that end everything and those that no image survives apart."""
    apart = {"deadlock", "pages-lost", "host-memory-lost", "cache-collides", "frozen-ranks"}
    scenario = small(copy_error_rate=0.02)
    for key in BEHIND_THE_GATEWAY:
        if key not in apart:
            scenario = with_fault(scenario, f"{key}:{rate}")
    return scenario


def test_the_same_seed_gets_the_same_faults_and_answers() -> None:
    one, other = hour(crowded(0.2)), hour(crowded(0.2))
    assert one == other
    assert len({key for exchange in one[1] for key in exchange.struck}) > 20


def test_renaming_everything_renames_what_faults_leak_and_changes_nothing_else() -> None:
    rng = random.Random(5)
    new_words = dict(zip(WORDS, rng.sample(WORDS, len(WORDS)), strict=True))
    chars = rng.sample(CODE_CHARS, len(CODE_CHARS))
    new_chars = {ord(old): new for old, new in zip(CODE_CHARS, chars, strict=True)}

    def image(text: str) -> str:
        renamed = text.translate(new_chars)
        return re.sub(r"[a-z]+", lambda word: new_words.get(word[0], word[0]), renamed)

    async def renamed(stage: Stage) -> Hour:
        stage.image = image
        return await busy(stage), list(stage.deployment.truth.ledger)

    # an adapter's words are others than the base model's, and not their images
    scenario = replace(crowded(0.2), adapters=())
    plainly = hour(scenario)
    answers, truth = on_stage(scenario, renamed)
    assert answers == [(image(text), end) for text, end in plainly[0]]
    assert [x.struck for x in truth] == [x.struck for x in plainly[1]]


@pytest.mark.parametrize("first", BEHIND_THE_GATEWAY[:-1])
def test_any_two_faults_go_together(first: FaultKey) -> None:
    async def play() -> None:
        for one, other in combinations(BEHIND_THE_GATEWAY, 2):
            if one is first:
                scenario = with_fault(with_fault(small(), f"{one}:1"), f"{other}:1")
                async with stage(scenario) as set_up:  # raises what a rank's loop died of
                    await brief(set_up)

    run(play())

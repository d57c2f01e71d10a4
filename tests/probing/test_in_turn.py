"""Lengths in turn: each run takes the next, and what others would feel needs leave."""

import asyncio
from itertools import pairwise

import pytest
from pydantic import ValidationError

from kvcanary.deployment.target import Target
from kvcanary.errors import UsageError
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.grammar import Probe, Read, load_probe, load_suite
from kvcanary.probing.intrusive import intrusive
from kvcanary.probing.plan import make_plan
from kvcanary.record.exchange import Purpose
from kvcanary.run import Options, run_check
from tests.builders import facts, sound
from tests.probing.test_plan import USUAL, incident

CONTEXT = 65_536


def longest(deployment: object, context: int, turn: int) -> int:
    plan = make_plan([load_probe("long")], deployment, context, USUAL, 4, 0, turn=turn)  # type: ignore[arg-type]
    return max(e.tokens for e in plan.exchanges if e.purpose is Purpose.READER)


@pytest.mark.parametrize("deployment", [sound(), facts(context=CONTEXT)])
def test_every_run_takes_another_rung_until_all_were(deployment: object) -> None:
    (rung,) = [s for s in load_probe("long").steps if isinstance(s, Read) and s.group == "rung"]
    rungs = len(rung.in_turn)
    lengths = [longest(deployment, CONTEXT, turn) for turn in range(2 * rungs)]
    assert len(set(lengths)) == rungs
    assert lengths[:rungs] == lengths[rungs:]
    assert lengths[0] > 0.95 * CONTEXT
    assert min(lengths) > 0.4 * CONTEXT


def test_a_danger_window_is_where_every_rung_is() -> None:
    limit = 681_280 - 7
    lengths = [longest(incident(), 1_048_576, turn) for turn in range(3)]
    assert all(limit < tokens < 1_048_576 for tokens in lengths)
    assert len(set(lengths)) == 3
    assert all(abs(one - other) > 10_000 for one, other in pairwise(sorted(lengths)))


@pytest.mark.parametrize(
    "text", [{}, {"tokens": "512", "in_turn": ["512"]}, {"again": "first", "in_turn": ["512"]}]
)
def test_fresh_text_has_one_length_or_lengths_in_turn(text: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="in_turn"):
        Read.model_validate({"do": "read", "group": "second", **text})


def test_a_length_in_turn_that_is_none_is_told() -> None:
    with pytest.raises(ValidationError, match="reech"):
        Read.model_validate({"do": "read", "group": "g", "in_turn": ["reach", "reech / 2"]})


INTRUSIVE = {"oversize", "pairs", "return", "aborts", "saturation", "backlog", "churn", "soak"}


@pytest.mark.parametrize("name", sorted(INTRUSIVE))
def test_what_fills_drops_or_crowds_is_intrusive(name: str) -> None:
    assert intrusive(load_probe(name))


def test_production_holds_nothing_intrusive() -> None:
    suite = load_suite("production")
    assert suite.beside_traffic
    assert [name for name in suite.probes if intrusive(load_probe(name))] == []


def a_probe(**step: object) -> Probe:
    whole = {"do": "read", "group": "own", "tokens": "512", **step}
    words = {"id": "own", "title": "t", "mechanism": ["slot-reuse"], "why": "w", "blind_to": "b"}
    return Probe.model_validate({**words, "steps": [whole]})


@pytest.mark.parametrize(
    ("step", "felt"),
    [
        ({}, False),
        ({"count": 16, "at_once": 16}, False),
        ({"count": 17}, True),
        ({"at_once": 32}, True),
        ({"overfill": True}, True),
    ],
)
def test_a_probe_of_ones_own_is_intrusive_by_what_it_sends(
    step: dict[str, object], felt: bool
) -> None:
    assert bool(intrusive(a_probe(**step))) is felt


async def _refused(**options: object) -> str:
    target = Target("nowhere", Endpoint("http://127.0.0.1:9/v1", "m"))
    with pytest.raises(UsageError) as told:
        await run_check(target, Options(suite="production", **options))  # type: ignore[arg-type]
    return str(told.value)


def test_beside_traffic_it_needs_leave_before_anything_is_sent() -> None:
    said = asyncio.run(_refused(probes=("saturation",)))
    assert "`saturation`" in said
    assert "--allow-intrusive" in said

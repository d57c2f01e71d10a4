"""What a prefix cache hands from a model to its adapter, and what an adapter makes of its own text."""

from typing import Any

import pytest

from kvcanary.detect import adapters
from kvcanary.engines import openai
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.manner import Manner
from kvcanary.verdict.findings import Finding, Severity
from tests.builders import calibration, exchange

START = 1_780_000_000.0
ADAPTER = Manner(adapter=True)


def sent(first: int, lost: int = 0, **fields: Any) -> list[Exchange]:
    """Nine of a stratum, one a second; ``again``: the texts of the nine that began with that number."""
    again = fields.pop("again", None)
    return [
        exchange(
            first + n,
            group=f"from-{first}",
            probe="adapters",
            started_at=START + first + n,
            lost=n < lost,
            text_of=None if again is None else again + n,
            **fields,
        )
        for n in range(9)
    ]


def run(
    own_lost: int = 0,
    lost: int = 0,
    cached: int = 0,
    back_cached: int = 0,
    first_cached: int = 0,
    again_cached: int = 0,
) -> list[Finding]:
    adapted: dict[str, Any] = {"purpose": Purpose.ADAPTED, "manner": ADAPTER}
    everything = [
        *calibration(*range(9)),
        *sent(10, own_lost, cached_tokens=first_cached, **adapted),
        *sent(20, cached_tokens=first_cached),
        *sent(30, lost, again=20, cached_tokens=cached, **adapted),
        *sent(40, again=20, cached_tokens=again_cached, **adapted),
        *sent(50, again=10, purpose=Purpose.RETURN, cached_tokens=back_cached),
    ]
    return list(adapters.findings(everything))


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({}, []),
        ({"again_cached": 9_000}, []),
        ({"cached": 200}, []),
        ({"cached": 9_000}, [("replay/cached-across-adapters", Severity.ACCOUNTING)]),
        ({"back_cached": 9_000}, [("replay/cached-across-adapters", Severity.ACCOUNTING)]),
        ({"cached": 9_000, "first_cached": 9_000}, []),
        ({"lost": 6}, [("replay/lost-across-adapters", Severity.CORRUPTION)]),
        ({"lost": 5}, [("replay/lost-across-adapters-undecided", Severity.DEGRADED)]),
        ({"lost": 1}, []),
        ({"lost": 6, "own_lost": 6}, []),
    ],
    ids=[
        "sound",
        "its own second visit hits",
        "a shared frame",
        "the model's",
        "the adapter's",
        "the hand-over counts as cached",
        "lost",
        "some lost",
        "a slip",
        "an adapter that copies badly",
    ],
)
def test_what_crosses_from_one_to_the_other(
    fields: dict[str, int], rules: list[tuple[str, Severity]]
) -> None:
    assert [(f.rule, f.severity) for f in run(**fields)] == rules


def test_it_names_the_visits_and_no_other() -> None:
    assert [f.exchanges for f in run(cached=9_000, lost=6)] == [
        tuple(range(30, 39)),
        tuple(range(30, 36)),
    ]


def test_adapters_are_those_whose_parent_is_the_model() -> None:
    cards = [
        {"id": "m", "root": "m", "parent": None},
        {"id": "m:a", "root": "/a", "parent": "m"},
        {"id": "other:b", "parent": "other"},
        {"id": "alias", "root": "m"},
        {"id": "odd", "parent": ["m"]},
    ]
    served = openai.models({"data": cards})
    assert openai.adapters_of(served, "m") == ("m:a",)
    assert openai.adapters_of((), "m") == ()

"""Was it one deployment that answered? From records made by hand."""

from typing import Any

import pytest

from kvcanary.deployment.facts import Facts, Role
from kvcanary.detect import identity
from kvcanary.engines import openai
from kvcanary.record.exchange import Answerer, Exchange
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import exchange, facts, healthy, worker


def answers(configurations: str, seconds: float = 1.0) -> list[Exchange]:
    """One answer each, a second apart; longer than that, they overlap."""
    return [
        exchange(
            number,
            started_at=1_780_000_000.0 + number,
            total_seconds=seconds,
            answerer=Answerer(configuration=c, model="m"),
        )
        for number, c in enumerate(configurations)
    ]


@pytest.mark.parametrize(
    ("order", "number"),
    [
        ("aaaaaaab", 7),
        ("abbbbbbb", 1),
        ("aaaabbbb", 4),
        ("aaaabbcc", 4),
        ("aaaaaababbbb", 6),
        ("ababababcccc", 8),
    ],
)
def test_a_configuration_that_went_for_good_is_a_change(order: str, number: int) -> None:
    (found,) = identity.findings(answers(order), None, None)
    assert found.rule == "identity/configuration-changed"
    assert found.severity is Severity.DEGRADED
    assert found.exchanges == (number,)


@pytest.mark.parametrize("order", ["", "a", "aaaaaaaa", "abababab", "aabaabab", "abbbbbba"])
def test_replicas_that_differ_all_the_time_are_none(order: str) -> None:
    assert identity.findings(answers(order), None, None) == ()


def test_requests_in_flight_at_once_may_be_answered_in_any_order() -> None:
    """The new one answers 7 first, then the old one 6, which started before 7 was over."""
    (found,) = identity.findings(answers("aaaaaaba", seconds=3.0), None, None)
    assert found.rule == "identity/configuration-changed"
    assert identity.findings(answers("aaaaabaaaa", seconds=3.0), None, None) == ()


def with_response(number: int, response: str | None) -> Exchange:
    return exchange(number, answerer=Answerer(response=response))


def test_the_same_prompt_with_the_same_response_is_a_cache() -> None:
    (found,) = identity.findings([with_response(3, "x"), with_response(3, "x")], None, None)
    assert "response cache" in found.title
    assert identity.findings([with_response(3, "x"), with_response(3, "y")], None, None) == ()
    assert identity.findings([with_response(3, None), with_response(3, None)], None, None) == ()


def test_different_prompts_with_one_response_are_said_first() -> None:
    twice = [with_response(3, "x"), with_response(3, "x"), with_response(4, "x")]
    (found,) = identity.findings(twice, None, None)
    assert "different prompts" in found.title
    assert set(found.exchanges) == {3, 4}


def test_one_other_model_among_many_is_named_and_an_alias_is_not() -> None:
    usual = [exchange(n, answerer=Answerer(model="m", as_asked=False)) for n in range(9)]
    (found, _) = identity.findings(
        [*usual, exchange(9, group="edge", answerer=Answerer(model="other"))], None, None
    )
    assert found.rule == "identity/another-model"
    assert found.exchanges == (9,)
    assert "edge" in found.evidence[0]


def deployed(**fields: Any) -> Facts:
    usual: dict[str, Any] = {"version": "0.5.23", "started_at": 1_700_000_000.0}
    return facts(worker(Role.DECODE, **{**usual, **fields}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": "0.5.24"}, "version was 0.5.23, is 0.5.24"),
        ({"started_at": 1_700_000_009.0}, "start was"),
        ({"pool": 50_000}, "pool was 100000, is 50000"),
    ],
)
def test_a_worker_that_tells_something_else_afterwards(fields: dict[str, Any], words: str) -> None:
    (found,) = identity.findings([], deployed(), deployed(**fields))
    assert words in "\n".join(found.evidence)


def test_a_worker_that_tells_nothing_afterwards_has_not_changed() -> None:
    assert identity.findings([], deployed(), deployed(version=None, started_at=None)) == ()
    assert identity.findings([], deployed(), deployed()) == ()


def test_workers_that_came_and_went() -> None:
    other = facts(worker(Role.DECODE, url="http://elsewhere:1"))
    (found,) = identity.findings([], deployed(), other)
    assert len(found.evidence) == 2


def named(number: int, **fields: Any) -> Exchange:
    return exchange(number, answerer=Answerer(model="m", as_asked=False, **fields))


def test_an_alias_is_said_and_changes_no_claim() -> None:
    sent = [named(n, another_served=False) for n in range(5)]
    (found,) = identity.findings(sent, None, None)
    assert (found.rule, found.severity) == ("identity/not-as-asked", Severity.DEGRADED)
    run = healthy()
    aliased = [e.model_copy(update={"answerer": sent[0].answerer}) for e in run.exchanges]
    before, after = (
        judge(r, ()).verdict for r in (run, run.model_copy(update={"exchanges": tuple(aliased)}))
    )
    assert [c.status for c in before.claims] == [c.status for c in after.claims]


def test_another_adapter_that_is_served_here_is_no_alias() -> None:
    sent = [named(n, another_served=True) for n in range(3)]
    (found,) = identity.findings(sent, None, None)
    assert found.rule == "identity/another-adapter"
    assert found.exchanges == (0, 1, 2)


LISTED = {
    "data": [
        {"id": "base", "root": "/models/base"},
        {"id": "base-too", "root": "/models/base"},
        {"id": "adapter", "root": "/adapters/a", "parent": "base"},
        {"id": "rootless"},
    ]
}


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ("base", {"adapter", "rootless"}),
        ("base-too", {"adapter", "rootless"}),
        ("adapter", {"base", "base-too", "rootless"}),
        ("rootless", {"base", "base-too", "adapter"}),
        ("unlisted", {"base", "base-too", "adapter", "rootless"}),
    ],
)
def test_two_names_of_one_root_are_one_model(asked: str, others: set[str]) -> None:
    assert openai.others(openai.models(LISTED), asked) == others

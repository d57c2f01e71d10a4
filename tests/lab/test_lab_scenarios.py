"""The scenarios differ in what they say they differ in, and keep their numbers."""

from dataclasses import asdict, replace

import pytest

from kvcanary.errors import UsageError
from kvcanary.lab import Scenario, scenario_named, scenario_names, scenarios
from kvcanary.lab.limits import Limits

WORDS_FOR_PEOPLE = {"name", "wrong", "check_says"}


def pools(scenario: Scenario) -> list[int]:
    shapes = (*scenario.prefill_shapes, *scenario.decode_shapes)
    return [tokens for shape in shapes for tokens in shape.rank_pool_tokens]


def differing(one: str, other: str) -> set[str]:
    a, b = asdict(scenario_named(one)), asdict(scenario_named(other))
    return {key for key in a if a[key] != b[key]} - WORDS_FOR_PEOPLE


def test_the_patched_deployment_differs_in_one_predicate() -> None:
    assert differing("glm-5.3", "glm-5.3-patched") == {"gate"}
    sick, patched = scenario_named("glm-5.3").gate, scenario_named("glm-5.3-patched").gate
    assert replace(sick, sees_pending_abort=True) == patched
    assert not sick.sees_pending_abort


def test_the_healthy_deployment_has_the_blind_gate_and_a_bigger_pool() -> None:
    assert differing("glm-5.3", "healthy") == {"prefill"}


def test_the_incident_has_its_numbers() -> None:
    incident = scenario_named("glm-5.3")
    assert incident.context_tokens == 1_048_576
    assert incident.prefill.pool_tokens == 681_280
    assert incident.decode.pool_tokens == 2_043_904
    assert Limits(incident.context_tokens, 681_280).max_req_input_len == 681_274


def test_the_longest_accepted_prompt_is_the_captured_one() -> None:
    limits = Limits(context_tokens=2048, pool_tokens=700)
    assert limits.max_req_input_len == 694
    assert limits.output_room(600) == 98


@pytest.mark.parametrize("context", [512, 4096, 16_384, 100_000])
def test_scaling_keeps_whole_pages_and_the_proportions(context: int) -> None:
    for scenario in scenarios():
        small = scenario.scaled(context_tokens=context)
        for before, after in zip(pools(scenario), pools(small), strict=True):
            assert after % small.page_tokens == 0
            exact = before * context / scenario.context_tokens
            assert exact - 64 < after <= exact


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"glm-5\.3-patched"):
        scenario_named("glm")
    assert scenario_names()[0] == "healthy"

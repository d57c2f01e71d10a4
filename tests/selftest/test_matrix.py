"""What the matrix amounts to: errors of kvcanary, and what alone catches something. Values only."""

import json

import pytest

from kvcanary.report.selftest import markdown
from kvcanary.selftest.case import Case, Kind, Terms
from kvcanary.selftest.look_alikes import look_alikes
from kvcanary.selftest.matrix import Detection, Result, Selftest, conclude, together
from kvcanary.verdict.findings import Severity

TERMS = Terms(
    suite="predeploy",
    besides="soak",
    context_tokens=4_096,
    page_tokens=16,
    seed=0,
    deadline_seconds=30,
    case_seconds=300,
)


def said(
    rule: str = "isolation/foreign-text", probe: str = "oversize", **fields: object
) -> Detection:
    defaults: dict[str, object] = {
        "severity": Severity.LEAK,
        "hit": 4,
        "named": 2,
        "others": 0,
        "seconds": 3.0,
        "prompt_tokens": 9_000,
    }
    return Detection.model_validate({"rule": rule, "probe": probe, **defaults, **fields})


def fault(*found: Detection, key: str = "tail-missing", blind: str | None = None) -> Result:
    case = Case(key=key, kind=Kind.FAULT, what="w", mechanism="m", blind=blind)
    return Result(case=case, exit_code=1, hit=4, named=2, detections=found)


def innocent(*found: Detection) -> Result:
    return Result(case=look_alikes()[0], exit_code=0, detections=found)


def concluded(*results: Result) -> Selftest:
    return conclude("1.0", TERMS, results, complete=True)


def test_a_fault_that_is_caught_and_an_innocent_that_is_not_accused_are_no_errors() -> None:
    assert concluded(fault(said()), innocent()).errors == ()


def test_a_warning_catches_too() -> None:
    warned = said("output/degenerate", severity=Severity.DEGRADED)
    assert concluded(fault(warned)).errors == ()


@pytest.mark.parametrize(
    "found",
    [
        (),
        (said(named=0, others=3),),
        (said("capacity/pool-below-context", "", severity=Severity.CAPACITY),),
    ],
    ids=["nothing", "others only", "facts alone"],
)
def test_a_fault_that_is_not_caught_is_an_error_unless_nobody_could(
    found: tuple[Detection, ...],
) -> None:
    assert concluded(fault(*found)).errors == ("tail-missing: not caught",)
    assert concluded(fault(*found, blind="it changes no answer")).errors == ()


def test_what_names_no_exchange_catches_where_it_is_no_fact() -> None:
    pool = said("availability/pool-not-returned", "", severity=Severity.DEGRADED, named=0)
    assert concluded(fault(pool)).errors == ()


@pytest.mark.parametrize("severity", Severity)
def test_only_capacity_and_warnings_may_be_said_of_an_innocent(severity: Severity) -> None:
    allowed = severity in (Severity.CAPACITY, Severity.DEGRADED)
    errors = concluded(innocent(said(severity=severity))).errors
    assert errors == (() if allowed else ("own-cache: accused: isolation/foreign-text",))


def test_a_case_that_could_not_be_run_is_an_error() -> None:
    broken = Result(case=look_alikes()[0], error="no port")
    assert concluded(broken).errors == ("own-cache: no port",)


def test_what_alone_catches_something_is_told() -> None:
    both = fault(said(), said("ownership/labels-lost"), key="a")
    one = fault(said(), key="b")
    whole = concluded(both, one)
    assert [(u.name, u.catches, u.alone) for u in whole.rules] == [
        ("isolation/foreign-text", 2, ("b",)),
        ("ownership/labels-lost", 1, ()),
    ]
    assert [(u.name, u.alone) for u in whole.probes] == [("oversize", ("a", "b"))]


def test_a_second_run_comes_after_the_first() -> None:
    first = Result(
        case=fault().case, exit_code=0, seconds=10, prompt_tokens=500, exchanges=3, hit=1
    )
    second = Result(
        case=fault().case, exit_code=3, seconds=2, prompt_tokens=70, hit=1, detections=(said(),)
    )
    both = together(first, second, ("soak",))
    assert (both.seconds, both.prompt_tokens, both.hit) == (12, 570, 2)
    assert [(d.seconds, d.prompt_tokens) for d in both.detections] == [(13.0, 9_500)]
    assert (both.exit_code, both.besides) == (0, ("soak",))


def test_it_survives_json_and_is_told_in_markdown() -> None:
    whole = concluded(fault(said()), fault(key="no-luck"), innocent())
    assert Selftest.model_validate(json.loads(whole.model_dump_json())) == whole
    text = markdown(whole)
    assert "| `no-luck` | 4 | 50% | NOT CAUGHT |" in text
    assert "1 of 2 faults caught" in text
    assert "- error of kvcanary: no-luck: not caught" in text


def test_look_alikes_have_keys_of_their_own() -> None:
    keys = [case.key for case in look_alikes()]
    assert len(set(keys)) == len(keys) > 14

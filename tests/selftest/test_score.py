"""The scorer: what a run found against what the lab says has happened. Values only."""

from kvcanary.record.exchange import Exchange
from kvcanary.selftest.case import Case, Kind
from kvcanary.selftest.matrix import Result
from kvcanary.selftest.score import scored
from kvcanary.verdict.findings import Severity
from tests.builders import SCALE, exchange, foreign, record

FAULT = Case(key="some-fault", kind=Kind.FAULT, what="something", mechanism="slot-reuse")
CODE = foreign(extent=16, whole=True, request=9)


def leaking(number: int, **fields: object) -> Exchange:
    return exchange(number, foreign=(CODE,), **fields)


def at(number: int, second: float, **fields: object) -> Exchange:
    """One that began at that second and took one."""
    leaks = fields.pop("leaks", False)
    one = exchange(number, started_at=1_780_000_000.0 + second, tokens=1_000, **fields)
    return one.model_copy(update={"foreign": (CODE,)}) if leaks else one


def score(*exchanges: Exchange, hit: tuple[int, ...] = ()) -> Result:
    names = {e.name for e in exchanges if e.number in hit}
    return scored(FAULT, record(*exchanges, scale=SCALE), names)


def test_a_leak_that_was_hit_is_named_by_probe_and_rule() -> None:
    result = score(at(1, 0), at(2, 1, leaks=True), at(3, 2, probe="matrix"), hit=(2, 3))
    (found,) = result.detections
    assert (found.probe, found.rule) == ("oversize", "isolation/foreign-text")
    assert found.severity is Severity.LEAK
    assert (found.hit, found.named, found.others) == (1, 1, 0)
    assert (result.hit, result.named, result.exchanges) == (2, 1, 3)
    assert found.catches
    assert result.wrong is None


def test_what_names_only_others_does_not_catch() -> None:
    result = score(at(1, 0), at(2, 1, leaks=True), hit=(1,))
    assert (result.hit, result.named) == (1, 0)
    assert [d.others for d in result.detections] == [1]
    assert result.catching == ()
    assert result.wrong == "not caught"


def test_time_and_tokens_are_those_of_the_first_that_was_enough() -> None:
    result = score(*(at(n, n, leaks=n >= 4) for n in range(8)), hit=(4, 5, 6, 7))
    (found,) = result.detections
    assert found.seconds == 5.0, "it began at 4 s and took one"
    assert found.prompt_tokens == 6_000, "0 to 5 had been sent by then"


def test_each_probe_has_a_time_of_its_own() -> None:
    result = score(at(1, 0, leaks=True), at(2, 5, leaks=True, probe="matrix"), hit=(1, 2))
    assert [(d.probe, d.seconds) for d in result.catching] == [("oversize", 1.0), ("matrix", 6.0)]


def test_a_fault_that_nothing_was_hit_by_is_told_apart() -> None:
    assert "never hit" in (score(at(1, 0)).wrong or "")
    assert score().wrong is not None

"""Drift: what is different from an earlier run, whatever happened to the addresses."""

from typing import Any

import pytest

from kvcanary.deployment.facts import Facts, Parallelism, Rank, Role
from kvcanary.detect import drift
from kvcanary.record.baseline import Baseline
from kvcanary.verdict.claims import ClaimName, ExitCode
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import RUN, facts, healthy, info, sound, worker

KEY = info().site_key


def baseline(then: Facts) -> Baseline:
    return Baseline(run=RUN, site_key=KEY, started_at=1_780_000_000.0, facts=then)


def found(then: Facts, now: Facts) -> dict[str, tuple[str, ...]]:
    return {f.rule: f.evidence for f in drift.findings(baseline(then), now, KEY)}


def decode(**fields: Any) -> Facts:
    return facts(worker(Role.PREFILL), worker(Role.DECODE, **fields))


def test_nothing_is_different_from_itself_or_from_nothing() -> None:
    assert found(sound(), sound()) == {}
    assert drift.findings(None, sound(), KEY) == ()
    assert drift.findings(baseline(sound()), None, KEY) == ()


@pytest.mark.parametrize(
    ("now", "severity"), [(99_500, Severity.DEGRADED), (98_000, Severity.CAPACITY)]
)
def test_a_pool_that_shrank_is_a_finding_even_when_it_fits(now: int, severity: Severity) -> None:
    (finding,) = drift.findings(baseline(decode(pool=100_000)), decode(pool=now), KEY)
    assert (finding.rule, finding.severity) == ("drift/pool-shrank", severity)
    assert f"pool was 100,000 tokens, is {now:,}" in finding.evidence[0]
    record = healthy(facts=decode(pool=now), baseline=baseline(decode(pool=100_000)))
    code = judge(record, (ClaimName.CAPACITY,)).verdict.exit_code
    assert code is (ExitCode.VIOLATION if severity is Severity.CAPACITY else ExitCode.PASS)


def test_one_rank_that_shrank_is_named() -> None:
    def ranks(*pools: int) -> Facts:
        each = tuple(Rank(rank=n, pool_tokens=pool) for n, pool in enumerate(pools))
        return facts(worker(Role.UNIFIED, min(pools), ranks=each))

    lines = found(ranks(90_000, 100_000), ranks(90_000, 95_000))["drift/pool-shrank"]
    assert lines == (
        "unified worker http://unified:30000, DP rank 1: pool was 100,000 tokens, is 95,000 (-5.0%)",
    )
    (alone,) = found(ranks(100_000), ranks(95_000))["drift/pool-shrank"]
    assert "rank" not in alone, "it has no other"


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"version": "0.5.20"}, {"version": "0.5.23"}, "version was 0.5.20, is 0.5.23"),
        ({"engine": "vllm"}, {}, "engine was vllm, is sglang"),
        ({"page_tokens": 1}, {}, "page was 1, is 64"),
        ({"configuration": "aa"}, {"configuration": "bb"}, "its arguments are different"),
        (
            {"parallelism": Parallelism(tensor=8)},
            {"parallelism": Parallelism(tensor=4)},
            "tensor parallelism was 8, is 4",
        ),
        ({"limit": 60_000}, {"limit": 61_000}, "longest prompt was 60,000, is 61,000"),
        ({"pool": 90_000}, {}, "pool was 90,000 tokens, is 100,000"),
        ({}, {"pool": None, "limit": 65_529}, "pool was 100,000 tokens, is unknown"),
    ],
)
def test_whatever_else_is_different_is_said(
    then: dict[str, Any], now: dict[str, Any], said: str
) -> None:
    findings = drift.findings(baseline(decode(**then)), decode(**now), KEY)
    assert [(f.rule, f.severity) for f in findings] == [
        ("drift/deployment-changed", Severity.DEGRADED)
    ]
    assert findings[0].evidence == (f"decode worker http://decode:30000: {said}",)


@pytest.mark.parametrize("field", ["version", "configuration", "model"])
def test_what_only_one_of_them_tells_is_no_difference(field: str) -> None:
    told = decode(**{field: "x"})
    assert found(told, decode()) == found(decode(), told) == {}
    known = decode(parallelism=Parallelism(tensor=8, data=2))
    assert found(known, decode(parallelism=Parallelism(tensor=8))) == {}


def test_configurations_of_another_site_key_do_not_compare() -> None:
    then, now = decode(configuration="aa"), decode(configuration="bb")
    assert drift.findings(baseline(then), now, KEY)
    assert drift.findings(baseline(then), now, "another") == ()


def test_workers_are_matched_by_address_then_by_order() -> None:
    old = facts(
        worker(Role.DECODE, 80_000, url="http://a"), worker(Role.DECODE, 90_000, url="http://b")
    )
    swapped = facts(
        worker(Role.DECODE, 90_000, url="http://b"), worker(Role.DECODE, 80_000, url="http://a")
    )
    assert found(old, swapped) == {}
    moved = facts(
        worker(Role.DECODE, 80_000, url="http://c"), worker(Role.DECODE, 90_000, url="http://b")
    )
    assert found(old, moved) == {}, "pods get new addresses"


def test_workers_that_came_or_went_are_said() -> None:
    one, two = facts(worker(Role.DECODE)), facts(worker(Role.DECODE), worker(Role.PREFILL))
    assert found(one, two)["drift/deployment-changed"] == (
        "prefill worker http://prefill:30000 is new",
    )
    assert found(two, one)["drift/deployment-changed"] == (
        "prefill worker http://prefill:30000 is gone",
    )


def test_another_promise_is_said() -> None:
    assert found(sound(), sound(context=60_000))["drift/deployment-changed"] == (
        "promised context was 65,536 tokens, is 60,000",
    )

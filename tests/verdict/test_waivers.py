"""A waiver answers for a finding until its day; it never makes unmeasured things pass."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from kvcanary.canary.prompt import Position
from kvcanary.errors import ConfigError
from kvcanary.probing.yaml_file import load_yaml
from kvcanary.record.exchange import Purpose
from kvcanary.record.run import HighWater, RunRecord
from kvcanary.verdict.claims import ClaimName, ExitCode
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import Judged, judge
from kvcanary.verdict.waivers import Waiver, Waivers, apply_waivers
from tests.builders import exchange, finding, foreign, healthy, info, readers, sound

RULE = "capacity/pool-below-context"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()
REQUIRED = (ClaimName.OWNERSHIP, ClaimName.CAPACITY)


def waiver(rule: str = RULE, until: str = "2026-06-30", stratum: str | None = None) -> Waiver:
    return Waiver(rule=rule, stratum=stratum, reason="ops says so", until=date.fromisoformat(until))


def judged(*waivers: Waiver, **fields: object) -> Judged:
    about = info(waivers=waivers, started_at=NOW)
    water = HighWater(tokens=97_000, how="measured")
    return judge(healthy(info=about, high_water=water, **fields), REQUIRED)


def short_pool(*waivers: Waiver) -> Judged:
    return judged(*waivers, facts=sound(prefill=65_200, decode=65_200))


def test_without_one_the_finding_fails() -> None:
    assert short_pool().verdict.exit_code is ExitCode.VIOLATION


def test_a_valid_one_lets_the_claim_pass_and_is_said() -> None:
    result = short_pool(waiver())
    assert result.verdict.exit_code is ExitCode.PASS
    (capacity,) = (c for c in result.verdict.claims if c.name is ClaimName.CAPACITY)
    assert "waived until 2026-06-30: ops says so" in capacity.text
    assert [f.waived for f in result.findings] == ["until 2026-06-30: ops says so"]


def test_it_holds_on_its_last_day_and_not_on_the_next() -> None:
    assert short_pool(waiver(until="2026-06-01")).verdict.exit_code is ExitCode.PASS
    expired = short_pool(waiver(until="2026-05-31"))
    assert expired.verdict.exit_code is ExitCode.VIOLATION
    assert "its waiver ended on 2026-05-31" in expired.findings[0].evidence[-1]


def test_another_rule_or_stratum_is_not_covered() -> None:
    for other in (waiver("capacity/contexts-differ"), waiver(stratum="edge")):
        assert short_pool(other).verdict.exit_code is ExitCode.VIOLATION


P1, P2 = "http://p1:30000", "http://p2:30000"


@pytest.mark.parametrize(
    ("about", "waived_for", "covered"),
    [
        ((P1,), [P1], True),
        ((P1,), [P1 + "/"], True),
        ((P1,), [P2], False),
        ((P1, P2), [P1], False),
        ((P1, P2), [P1, P2], True),
        ((P1, P2), [None], True),
        ((), [P1], False),
        ((), [None], True),
    ],
)
def test_a_worker_is_waived_and_no_other(
    about: tuple[str, ...], waived_for: list[str | None], covered: bool
) -> None:
    waivers = [
        Waiver(rule=RULE, worker=worker, reason="ops says so", until=date(2026, 6, 30))
        for worker in waived_for
    ]
    found = finding(rule=RULE, severity=Severity.CAPACITY, workers=about)
    (judged_one,) = apply_waivers([found], waivers, NOW)
    assert (judged_one.waived is not None) is covered


def test_of_several_workers_the_first_waiver_to_end_decides() -> None:
    waivers = [
        Waiver(rule=RULE, worker=worker, reason="ops says so", until=until)
        for worker, until in ((P1, date(2026, 5, 31)), (P2, date(2026, 6, 30)))
    ]
    found = finding(rule=RULE, severity=Severity.CAPACITY, workers=(P1, P2))
    (ended,) = apply_waivers([found], waivers, NOW)
    assert ended.waived is None
    assert "its waiver ended on 2026-05-31" in ended.evidence[-1]


def test_a_leak_cannot_be_waived() -> None:
    leak = finding(severity=Severity.LEAK, rule="isolation/foreign-text")
    (kept,) = apply_waivers([leak], [waiver("isolation/foreign-text")], NOW)
    assert kept.waived is None
    assert kept.evidence[-1] == "not waived: a leak cannot be waived"


def test_what_is_waived_hides_nothing_else_that_was_not_measured() -> None:
    """Corruption in one stratum is waived; another stratum was never read."""
    lost = [
        exchange(
            30 + n,
            group="window",
            tokens=64_000,
            lost=True,
            asked=Position.END,
            purpose=purpose,
        )
        for n, purpose in enumerate([Purpose.READER] * 3 + [Purpose.CONFIRMATION])
    ]
    record: RunRecord = healthy()
    sent = [e for e in record.exchanges if e.purpose is not Purpose.READER]
    unread = readers(40, "edge", tokens=65_000, outcome="hung")
    leaky = [e.model_copy(update={"foreign": (foreign(),)}) for e in lost]
    result = judged(
        waiver("ownership/labels-lost"),
        waiver("availability/not-served"),
        exchanges=[*sent, *leaky, *unread],
    )
    assert "ownership/labels-lost" in {f.rule for f in result.findings if f.waived}
    (ownership,) = (c for c in result.verdict.claims if c.name is ClaimName.OWNERSHIP)
    assert ownership.status.value == "inconclusive"
    assert "waived" in ownership.text


def test_a_waiver_file_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_text("waivers:\n  - rule: capacity/x\n    reason: because\n    untill: 2026-01-01\n")
    with pytest.raises(ConfigError, match=r"waivers.yaml:4:5: .*did you mean `until`"):
        load_yaml(path, Waivers)

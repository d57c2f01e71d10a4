"""Advisories: the shipped file is sound, ranges are as their source states, and what they do to a verdict."""

from pathlib import Path

import pytest
from packaging.version import Version

from kvcanary.deployment.advisories import shipped_advisories
from kvcanary.deployment.facts import Facts, Role, Switch, SwitchName
from kvcanary.detect import advisories
from kvcanary.detect.advisories import Advisories, Advisory, Condition
from kvcanary.errors import ConfigError
from kvcanary.probing.yaml_file import load_yaml
from kvcanary.verdict.findings import Severity
from tests.builders import facts, sound, worker

GLM = "sglang-refusal-not-terminal"
KNOWN = {advisory.id: advisory for advisory in shipped_advisories()}


def versioned(version: str | None, prefill: int = 100_000) -> Facts:
    return facts(
        worker(Role.PREFILL, prefill, version=version), worker(Role.DECODE, version=version)
    )


def match(deployment: Facts, identifier: str = GLM) -> list[tuple[str, Severity]]:
    return [(f.rule, f.severity) for f in advisories.findings([KNOWN[identifier]], deployment)]


def test_each_names_its_source_and_reads_as_prose() -> None:
    assert len(KNOWN) >= 4
    for advisory in KNOWN.values():
        assert advisory.references
        assert not advisory.title.endswith(".")
        assert advisory.remedy.strip().endswith(".")
        assert advisory.range


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("0.5.10.post2", False),
        ("0.5.11", True),
        ("0.5.15", True),
        ("0.5.19", True),
        ("0.5.19.post1", True),
        ("0.5.20.dev12+g680bd4b42", True),
        ("0.5.20", False),
        ("0.5.23", False),
        ("0.5.11.dev3", False),
        ("b6532", False),
        (None, False),
    ],
)
def test_the_range_of_the_incident(version: str | None, affected: bool) -> None:
    assert bool(match(versioned(version))) is affected


def test_a_range_that_ends_with_a_last_version() -> None:
    lmcache = KNOWN["vllm-lmcache-kv-layout"]
    told = {v: lmcache.affects(Version(v)) for v in ("0.25.1", "0.26.0", "0.26.0.post1", "0.26.1")}
    assert told == {"0.25.1": False, "0.26.0": True, "0.26.0.post1": True, "0.26.1": False}
    assert lmcache.range == "0.26.0 only"


def test_a_version_alone_warns_and_what_it_takes_fails() -> None:
    assert match(versioned("0.5.15")) == [("advisory/known-fault", Severity.DEGRADED)]
    (found,) = advisories.findings([KNOWN[GLM]], versioned("0.5.15", prefill=50_000))
    assert (found.rule, found.severity) == ("advisory/known-fault-reachable", Severity.CAPACITY)
    assert "what it takes is there: danger-window" in found.evidence
    assert found.stratum == GLM
    assert "0.5.21" in found.remedy


def test_what_it_needs_and_is_not_there_concerns_nobody() -> None:
    assert match(facts(worker(Role.UNIFIED, version="0.5.15"))) == []
    assert match(facts(worker(Role.DECODE, version="0.5.15", engine="vllm"))) == []


@pytest.mark.parametrize(
    ("condition", "yes", "no", "unknown"),
    [
        (Condition.DISAGGREGATED, sound(), facts(worker(Role.UNIFIED)), None),
        (
            Condition.POOL_BELOW_CONTEXT,
            facts(worker(Role.PREFILL, None), worker(Role.PREFILL, 50_000)),
            sound(decode=50_000),
            facts(worker(Role.PREFILL, None), worker(Role.PREFILL)),
        ),
        (
            Condition.DANGER_WINDOW,
            sound(prefill=50_000),
            sound(),
            facts(worker(Role.PREFILL, limit=None), worker(Role.DECODE)),
        ),
        (
            Condition.AUTO_TRUNCATION,
            facts(worker(switches=(Switch(name=SwitchName.NO_AUTO_TRUNCATE, on=False, flag=""),))),
            facts(worker(switches=(Switch(name=SwitchName.NO_AUTO_TRUNCATE, on=True, flag=""),))),
            facts(worker()),
        ),
    ],
)
def test_a_condition_is_met_not_met_or_unknown(
    condition: Condition, yes: Facts, no: Facts, unknown: Facts | None
) -> None:
    base = KNOWN[GLM].model_copy(update={"first": None, "fixed": "9", "needs": ()})
    reaching = base.model_copy(update={"reached_when": (condition,)})
    needing = base.model_copy(update={"needs": (condition,), "reached_when": ()})

    def run(advisory: Advisory, deployment: Facts | None) -> list[str]:
        if deployment is None:
            return ["advisory/known-fault"]
        dated = [w.model_copy(update={"version": "1"}) for w in deployment.workers]
        now = deployment.model_copy(update={"workers": tuple(dated)})
        return [f.rule for f in advisories.findings([advisory], now)]

    assert run(reaching, yes) == ["advisory/known-fault-reachable"]
    assert run(reaching, no) == run(reaching, unknown) == ["advisory/known-fault"]
    assert run(needing, no) == []
    assert run(needing, unknown) == ["advisory/known-fault"], "unknown does not clear it"


ENTRY = """advisories:
  - id: one
    engine: sglang
    title: Something goes wrong
    references: [S30233]
    source: a report says so
    remedy: Upgrade to another version.
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "`last` or `fixed`"),
        ("    fixed: yesterday\n", "is not a version"),
        ("    fixed: 1.0\n    fixd: 2\n", "did you mean `fixed`"),
        ("    fixed: 1.0.0\n    needs: [disagregated]\n", "disaggregated"),
        ("    fixed: 1.0.0\n    severity: degraded\n", "has to fail"),
    ],
)
def test_a_wrong_entry_is_said_with_its_place(tmp_path: Path, more: str, said: str) -> None:
    file = tmp_path / "advisories.yaml"
    file.write_text(ENTRY + more)
    with pytest.raises(ConfigError, match=said):
        load_yaml(file, Advisories)
    file.write_text(ENTRY + "    fixed: 1.0.0\n")
    assert load_yaml(file, Advisories).advisories[0].range == "before 1.0.0"

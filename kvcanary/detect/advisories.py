"""Advisories: known faults of engines, matched against what runs.

The list is data (``advisories.yaml`` beside this file) and names only ranges that its source states. A
version in the range is a warning; where the facts show that the fault can be reached, it fails.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Self

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kvcanary.deployment.facts import Facts, Role, SwitchName, Worker
from kvcanary.verdict.findings import FAILING, Finding, Severity

MAX_NAMED = 8
"""Workers that the evidence names one by one."""


class Condition(StrEnum):
    """Something about a deployment that a fault depends on."""

    DISAGGREGATED = "disaggregated"
    """Prefill and decode are workers of their own."""
    POOL_BELOW_CONTEXT = "pool-below-context"
    """Some prefill pool is smaller than the promised context."""
    DANGER_WINDOW = "danger-window"
    """Prefill refuses lengths that decode takes."""
    AUTO_TRUNCATION = "auto-truncation"
    """Prompts that are too long are cut."""


class Advisory(BaseModel):
    """One known fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    """Short name; stable."""
    engine: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")]
    """Engine as facts name it: sglang, vllm."""
    title: Annotated[str, Field(min_length=10, max_length=200)]
    """What happens, in a sentence."""
    first: str | None = None
    """First version that has the fault; default: every one before the end of the range."""
    last: str | None = None
    """Last version that is known to have it."""
    fixed: str | None = None
    """First version that does not have it. Development builds before it count as affected."""
    needs: tuple[Condition, ...] = ()
    """Without these it does not concern a deployment at all."""
    reached_when: tuple[Condition, ...] = ()
    """With these it can be reached by a plain request: then it fails. Empty: it is a warning always."""
    severity: Severity = Severity.CAPACITY
    """Of a finding when it can be reached."""
    references: tuple[Annotated[str, Field(min_length=3)], ...] = Field(min_length=1)
    """Reports, fixes, advisories."""
    source: Annotated[str, Field(min_length=10)]
    """Who states the range."""
    remedy: Annotated[str, Field(min_length=10)]
    """What to do."""

    @field_validator("first", "last", "fixed")
    @classmethod
    def _is_a_version(cls, value: str | None) -> str | None:
        if value is not None and version_of(value) is None:
            raise ValueError(f"`{value}` is not a version")
        return value

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.last is None and self.fixed is None:
            raise ValueError("a range needs its end: `last` or `fixed`")
        if self.severity not in FAILING:
            raise ValueError("the severity of a fault that can be reached has to fail")
        return self

    @property
    def range(self) -> str:
        """The affected versions, in words."""
        if self.last and self.last == self.first:
            return f"{self.last} only"
        if self.first:
            return (
                f"{self.first} to {self.last}"
                if self.last
                else f"{self.first} to before {self.fixed}"
            )
        return f"{self.last} and earlier" if self.last else f"before {self.fixed}"

    def affects(self, version: Version) -> bool:
        """Whether a version lies in the range. ``0.5.20.dev3`` comes before 0.5.20, and
        ``0.5.19.post1`` belongs to 0.5.19."""
        if self.first and version < Version(self.first):
            return False
        if self.fixed and version >= Version(self.fixed):
            return False
        return (
            not self.last
            or version <= Version(self.last)
            or (version.release == Version(self.last).release and not version.is_prerelease)
        )


class Advisories(BaseModel):
    """The file of advisories."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    advisories: tuple[Advisory, ...] = Field(min_length=1)
    """Known faults."""

    @model_validator(mode="after")
    def _are_told_apart(self) -> Self:
        ids = [advisory.id for advisory in self.advisories]
        if len(set(ids)) < len(ids):
            raise ValueError("two advisories have the same id")
        return self


def version_of(text: str | None) -> Version | None:
    """A version as Python packages have them; None for anything else (llama.cpp counts builds)."""
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def findings(known: Sequence[Advisory], facts: Facts) -> tuple[Finding, ...]:
    """Advisories that concern what runs."""
    found = []
    for advisory in known:
        affected = [w for w in facts.workers if _affected(advisory, w)]
        if affected and all(_CONDITIONS[c](facts) is not False for c in advisory.needs):
            found.append(_finding(advisory, affected, facts))
    return tuple(found)


def _affected(advisory: Advisory, worker: Worker) -> bool:
    version = version_of(worker.version)
    return worker.engine == advisory.engine and version is not None and advisory.affects(version)


def _finding(advisory: Advisory, affected: Sequence[Worker], facts: Facts) -> Finding:
    reached = bool(advisory.reached_when) and all(
        _CONDITIONS[c](facts) is True for c in (*advisory.needs, *advisory.reached_when)
    )
    lines = [
        f"{w.role} worker {w.url}: {w.engine} {w.version} ({w.told_by('version')})"
        for w in affected[:MAX_NAMED]
    ]
    if len(affected) > MAX_NAMED:
        lines.append(f"and {len(affected) - MAX_NAMED} more workers")
    lines.append(f"affected: {advisory.range} ({advisory.source})")
    if advisory.reached_when:
        conditions = " and ".join(c.value for c in advisory.reached_when)
        lines.append(
            f"what it takes is there: {conditions}"
            if reached
            else f"not shown to be reachable by a plain request here (that takes: {conditions})"
        )
    return Finding(
        rule="advisory/known-fault-reachable" if reached else "advisory/known-fault",
        severity=advisory.severity if reached else Severity.DEGRADED,
        stratum=advisory.id,
        title=f"{advisory.title} ({advisory.id})",
        evidence=(*lines, f"see {', '.join(advisory.references)}"),
        remedy=" ".join(advisory.remedy.split()),
        workers=tuple(dict.fromkeys(w.url for w in affected)),
    )


def _disaggregated(facts: Facts) -> bool | None:
    roles = {worker.role for worker in facts.workers}
    return bool(roles & {Role.PREFILL, Role.DECODE})


def _pool_below_context(facts: Facts) -> bool | None:
    context = facts.context_tokens
    pools = [w.pool_tokens for w in facts.workers if w.role is not Role.DECODE]
    if context is None or not pools:
        return None
    if any(pool is not None and pool < context for pool in pools):
        return True
    return None if None in pools else False


def _danger_window(facts: Facts) -> bool | None:
    if facts.danger_window:
        return True
    limits = [w.limit_tokens for w in facts.workers]
    return None if not limits or None in limits else False


def _auto_truncation(facts: Facts) -> bool | None:
    told = [
        s.on for w in facts.workers for s in w.switches if s.name is SwitchName.NO_AUTO_TRUNCATE
    ]
    if False in told:
        return True
    return None if not told or None in told else False


_CONDITIONS: Mapping[Condition, Callable[[Facts], bool | None]] = {
    Condition.DISAGGREGATED: _disaggregated,
    Condition.POOL_BELOW_CONTEXT: _pool_below_context,
    Condition.DANGER_WINDOW: _danger_window,
    Condition.AUTO_TRUNCATION: _auto_truncation,
}
"""True, False, or None where the facts do not tell."""

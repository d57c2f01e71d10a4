"""Waivers: findings that somebody has answered for, until a day. Leaks cannot be waived.

A waiver names a rule, optionally a stratum or a worker, a reason and its last day. A finding under a valid
waiver no longer fails its claim; it is still shown. When the day has passed it fails again, and says so.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from kvcanary.record.base import Recorded
from kvcanary.verdict.findings import Finding, Severity


class Waiver(Recorded):
    """One finding that is answered for."""

    rule: str = Field(pattern=r"^[a-z-]+/[a-z-]+$")
    """The finding's rule, for example capacity/pool-below-context."""
    stratum: str | None = None
    """Only in this stratum; default: in every one."""
    worker: Annotated[str, AfterValidator(lambda url: url.rstrip("/"))] | None = None
    """Only of the worker with this URL; default: of every one. A finding about several workers is waived when
    each of them is."""
    reason: Annotated[str, Field(min_length=3, max_length=200)]
    """Why this is acceptable, and who says so."""
    until: date
    """Last day on which it holds (YYYY-MM-DD, UTC)."""


class Waivers(BaseModel):
    """A waiver file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    waivers: tuple[Waiver, ...] = Field(min_length=1)
    """What is answered for."""


def apply_waivers(
    findings: Sequence[Finding], waivers: Sequence[Waiver], now: float
) -> tuple[Finding, ...]:
    """The findings, each with the waiver that covers it, if any."""
    today = datetime.fromtimestamp(now, UTC).date()
    return tuple(_waived(finding, waivers, today) for finding in findings)


def _waived(finding: Finding, waivers: Sequence[Waiver], today: date) -> Finding:
    mine = [w for w in waivers if w.rule == finding.rule and w.stratum in (None, finding.stratum)]
    latest = _covering(mine, finding.workers)
    if latest is None:
        return finding
    if finding.severity is Severity.LEAK:
        note = "a leak cannot be waived"
    elif latest.until < today:
        note = f"its waiver ended on {latest.until} ({latest.reason})"
    else:
        return finding.model_copy(update={"waived": f"until {latest.until}: {latest.reason}"})
    return finding.model_copy(update={"evidence": (*finding.evidence, f"not waived: {note}")})


def _covering(waivers: Sequence[Waiver], workers: Sequence[str]) -> Waiver | None:
    """The waiver that speaks for a finding about ``workers``; where several are needed, the first to end."""
    whole = [w for w in waivers if w.worker is None]
    parts = [
        [*whole, *(w for w in waivers if w.worker == worker.rstrip("/"))] for worker in workers
    ]
    choices = parts or [whole]
    if not all(choices):
        return None
    return min((max(choice, key=_until) for choice in choices), key=_until)


def _until(waiver: Waiver) -> date:
    return waiver.until

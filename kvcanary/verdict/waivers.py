"""Waivers: findings that somebody has answered for, until a day. Leaks cannot be waived.

A waiver names a rule, optionally a stratum, a reason and its last day. A finding under a valid waiver no
longer fails its claim; it is still shown. When the day has passed it fails again, and says so.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kvcanary.record.base import Recorded
from kvcanary.verdict.findings import Finding, Severity


class Waiver(Recorded):
    """One finding that is answered for."""

    rule: str = Field(pattern=r"^[a-z-]+/[a-z-]+$")
    """The finding's rule, for example capacity/pool-below-context."""
    stratum: str | None = None
    """Only in this stratum; default: in every one."""
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
    if not mine:
        return finding
    latest = max(mine, key=lambda w: w.until)
    if finding.severity is Severity.LEAK:
        note = "a leak cannot be waived"
    elif latest.until < today:
        note = f"its waiver ended on {latest.until} ({latest.reason})"
    else:
        return finding.model_copy(update={"waived": f"until {latest.until}: {latest.reason}"})
    return finding.model_copy(update={"evidence": (*finding.evidence, f"not waived: {note}")})

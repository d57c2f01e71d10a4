"""A finding: one violated expectation with its evidence and what to do."""

from collections.abc import Iterable
from enum import StrEnum

from kvcanary.record.base import Recorded


class Severity(StrEnum):
    """Worst first."""

    LEAK = "leak"
    CORRUPTION = "corruption"
    CAPACITY = "capacity"
    AVAILABILITY = "availability"
    ACCOUNTING = "accounting"
    DEGRADED = "degraded"


FAILING = frozenset(Severity) - {Severity.DEGRADED}
"""Severities that make a claim fail; the rest is a warning."""


class Finding(Recorded):
    """``rule`` is stable; ``stratum`` names the exchanges it is about; where they are of several, it is the
    family of the rule."""

    rule: str
    severity: Severity
    stratum: str
    title: str
    evidence: tuple[str, ...]
    remedy: str
    exchanges: tuple[int, ...] = ()
    workers: tuple[str, ...] = ()
    """URLs of the workers that it is about; empty: of the deployment as a whole."""
    waived: str | None = None
    """Until when and why this finding fails nothing; None where it counts."""
    odds: float | None = None
    """Designed odds that chance alone produced this, in the whole run."""


def stratum_of(groups: Iterable[str], family: str) -> str:
    """The one stratum that exchanges of these groups belong to; of several, the ``family`` of the rule, so
    that a waiver for one stratum covers no other."""
    known = set(groups)
    return known.pop() if len(known) == 1 else family


def named(groups: Iterable[str]) -> str:
    """The strata as a sentence names them."""
    *most, last = (f"`{group}`" for group in dict.fromkeys(groups))
    return f"{', '.join(most)} and {last}" if most else last

"""A case: one deployment of the lab that has a fault, or only looks as if it had one."""

from enum import StrEnum

from kvcanary.record.base import Recorded


class Kind(StrEnum):
    """What ought to come of a case."""

    FAULT = "fault"
    """It has to be caught."""
    LOOK_ALIKE = "look-alike"
    """It must not be accused."""


class Case(Recorded):
    """One deployment of the lab."""

    key: str
    kind: Kind
    what: str
    """What is wrong with it, or what it looks like."""
    mechanism: str | None = None
    """Of a fault."""
    blind: str | None = None
    """Why no client can see this fault: it is shown, and is no error of kvcanary."""
    scenario: str = "healthy"
    habits: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Terms(Recorded):
    """What all cases of one selftest share."""

    suite: str
    besides: str | None
    """A suite whose probes of its mechanism a fault gets that the first suite does not catch."""
    context_tokens: int
    page_tokens: int
    seed: int
    deadline_seconds: float
    """Longest wait for one request."""
    case_seconds: float
    """Longest time for one case: what was recorded until then is scored."""

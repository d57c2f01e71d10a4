"""A case: one deployment of the lab that has a fault, or only looks as if it had one."""

from enum import StrEnum

from kvcanary.record.base import Recorded

BY_ORDER = 20.0
"""Speed of a lab of which only the order of its waits matters."""
BY_TIME = 0.2
"""Speed of one whose fault is seen by time alone: what it waits has to stand out from what the machine adds."""


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
    speed: float = BY_ORDER
    """Seconds of the lab's clock in a second."""
    salts: bool = False
    """Whether its deployment file gives each tenant a cache salt: a promise to keep them apart."""
    scenario: str = "healthy"
    habits: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Terms(Recorded):
    """What all cases of one selftest share."""

    suite: str
    besides: str | None
    """A suite whose probes of its mechanism a fault gets for which no claim fails by the first suite; of which
    a look-alike gets some, too."""
    probes: tuple[str, ...] = ()
    """These instead of the suite's own."""
    to_the_end: bool = False
    """Whether a fault's run goes on when a leak or a corruption is proven, to see what else catches it."""
    context_tokens: int
    page_tokens: int
    seed: int
    deadline_seconds: float
    """Longest wait for one request."""
    case_seconds: float
    """Longest time for one case: what was recorded until then is scored."""

"""The matrix: fault by probe by rule, and what follows from it."""

from kvcanary.record.base import Recorded
from kvcanary.selftest.case import Case, Kind, Terms
from kvcanary.verdict.findings import FAILING, Severity

SCHEMA_VERSION = 1
TRAFFIC_FREE = frozenset({"capacity", "hardware", "drift", "advisory"})
"""Families of rules that come from facts alone: what they say is said of the sound deployment, too."""
INNOCENT_OF = frozenset(
    {Severity.LEAK, Severity.CORRUPTION, Severity.AVAILABILITY, Severity.ACCOUNTING}
)
"""What must never be said of a look-alike."""


class Detection(Recorded):
    """What one rule said of one probe's exchanges."""

    probe: str
    """Empty where the finding names no exchange."""
    rule: str
    severity: Severity
    hit: int
    """Exchanges of this probe that the fault had a part in."""
    named: int
    """How many of those the findings name."""
    others: int
    """Exchanges that they name and that the fault had no part in."""
    seconds: float
    """From the first request to the end of the one with which the rule had enough."""
    prompt_tokens: int
    """Sent until then."""

    @property
    def catches(self) -> bool:
        """It names what was hit; or no exchange at all, and what it says does not come from facts alone."""
        if self.probe:
            return self.named > 0
        return self.rule.split("/")[0] not in TRAFFIC_FREE

    @property
    def fails(self) -> bool:
        """Whether it makes a claim fail; else it is a warning."""
        return self.severity in FAILING


class Result(Recorded):
    """One case and what came of it."""

    case: Case
    exit_code: int | None = None
    """Of the suite itself. None: the run did not come to a verdict."""
    stopped: str | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    exchanges: int = 0
    prompt_tokens: int = 0
    hit: int = 0
    """Exchanges that the fault had a part in, as the lab's truth says."""
    named: int = 0
    """How many of those some finding names."""
    detections: tuple[Detection, ...] = ()
    besides: tuple[str, ...] = ()
    """Probes that were run because the suite had not caught it."""
    error: str | None = None
    """Why there is no run to score."""

    @property
    def catching(self) -> tuple[Detection, ...]:
        """What caught it, first things first."""
        found = (d for d in self.detections if d.catches)
        return tuple(sorted(found, key=lambda d: (d.seconds, not d.fails, d.rule, d.probe)))

    @property
    def accusations(self) -> tuple[Detection, ...]:
        """What is said that must not be said of an innocent."""
        return tuple(d for d in self.detections if d.severity in INNOCENT_OF)

    @property
    def wrong(self) -> str | None:
        """The error of kvcanary that this case shows; None: there is none."""
        if self.error:
            return self.error
        if self.case.kind is Kind.LOOK_ALIKE:
            rules = dict.fromkeys(d.rule for d in self.accusations)
            return f"accused: {', '.join(rules)}" if rules else None
        if self.catching or self.case.blind:
            return None
        return "not caught" if self.hit else "never hit: no probe sends what it needs"


def together(first: Result, second: Result, besides: tuple[str, ...]) -> Result:
    """Two runs of one case: what the second found came after all of the first, whose exit code stays."""
    later = tuple(
        d.model_copy(
            update={
                "seconds": first.seconds + d.seconds,
                "prompt_tokens": first.prompt_tokens + d.prompt_tokens,
            }
        )
        for d in second.detections
    )
    return first.model_copy(
        update={
            "seconds": first.seconds + second.seconds,
            "exchanges": first.exchanges + second.exchanges,
            "prompt_tokens": first.prompt_tokens + second.prompt_tokens,
            "hit": first.hit + second.hit,
            "named": first.named + second.named,
            "detections": first.detections + later,
            "besides": besides,
        }
    )


class Unique(Recorded):
    """A rule, or a probe, and the faults that nothing else catches."""

    name: str
    catches: int
    """Faults that it catches."""
    alone: tuple[str, ...]
    """Those that nothing else catches."""


class Selftest(Recorded):
    """All cases, and what follows from them."""

    schema_version: int = SCHEMA_VERSION
    kvcanary_version: str
    terms: Terms
    complete: bool
    """Whether every case was run."""
    results: tuple[Result, ...]
    rules: tuple[Unique, ...]
    probes: tuple[Unique, ...]
    errors: tuple[str, ...]

    @property
    def faults(self) -> tuple[Result, ...]:
        """The faults."""
        return tuple(r for r in self.results if r.case.kind is Kind.FAULT)

    @property
    def look_alikes(self) -> tuple[Result, ...]:
        """The innocents."""
        return tuple(r for r in self.results if r.case.kind is Kind.LOOK_ALIKE)


def conclude(
    version: str, terms: Terms, results: tuple[Result, ...], *, complete: bool
) -> Selftest:
    """What the results amount to."""
    faults = [r for r in results if r.case.kind is Kind.FAULT]
    return Selftest(
        kvcanary_version=version,
        terms=terms,
        complete=complete,
        results=results,
        rules=_unique({r.case.key: {d.rule for d in r.catching} for r in faults}),
        probes=_unique({r.case.key: {d.probe for d in r.catching} - {""} for r in faults}),
        errors=tuple(f"{r.case.key}: {r.wrong}" for r in results if r.wrong),
    )


def _unique(by_fault: dict[str, set[str]]) -> tuple[Unique, ...]:
    """Those with most to themselves first."""
    names = sorted(set().union(*by_fault.values()))
    made = [
        Unique(
            name=name,
            catches=sum(name in caught for caught in by_fault.values()),
            alone=tuple(fault for fault, caught in by_fault.items() if caught == {name}),
        )
        for name in names
    ]
    return tuple(sorted(made, key=lambda u: (-len(u.alone), -u.catches)))

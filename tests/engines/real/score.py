"""What a run said of a real deployment, against the connector's log of what really happened."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.run import RunRecord
from tests.engines.real.fault import Transfer

_ASKED = (Purpose.READER, Purpose.CONFIRMATION, Purpose.CONTROL, Purpose.BYSTANDER)


@dataclass(frozen=True)
class Score:
    """Answers that were asked for a label, by what their pages held.

    Attributes:
        struck: computed from pages that did not hold the prompt.
        flagged: of those, named by a finding of ownership or isolation.
        attributed: of those, told by a finding whose pages they were.
        accused: computed from the right pages, and named all the same.
    """

    struck: tuple[int, ...]
    flagged: tuple[int, ...]
    attributed: tuple[int, ...]
    accused: tuple[int, ...]

    def __str__(self) -> str:
        struck = len(self.struck)
        return (
            f"{len(self.flagged)} of {struck} struck answers flagged, {len(self.attributed)} attributed, "
            f"{len(self.accused)} sound ones accused"
        )


def scored(record: RunRecord, transfers: Sequence[Transfer]) -> Score:
    """The engine puts its own words around the name that a request was sent under."""
    named = _named(record, ("ownership/labels-lost", "isolation/"))
    told = _named(record, ("isolation/",))
    asked = [e for e in record.exchanges if e.answered and e.purpose in _ASKED]
    struck = [e for e in asked if _wrong_pages(e, transfers)]
    numbers = [e.number for e in struck]
    return Score(
        struck=tuple(numbers),
        flagged=tuple(n for n in numbers if n in named),
        attributed=tuple(
            e.number
            for e in struck
            if e.number in told and any(t.tenant is not None for t in e.foreign)
        ),
        accused=tuple(e.number for e in asked if e.number in named and e not in struck),
    )


def _named(record: RunRecord, rules: tuple[str, ...]) -> frozenset[int]:
    return frozenset(
        number
        for finding in record.findings
        if finding.rule.startswith(rules)
        for number in finding.exchanges
    )


def _wrong_pages(exchange: Exchange, transfers: Sequence[Transfer]) -> int:
    return sum(t.wrong_pages for t in transfers if f"-{exchange.name}-" in f"-{t.request}-")

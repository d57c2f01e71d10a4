"""What a part of a scan has seen, and what two parts have seen together."""

from dataclasses import dataclass, field
from heapq import nlargest

from kvcanary.record.base import Recorded
from kvcanary.scan.sighting import Kind, Sighting

MAX_SIGHTINGS = 10_000
"""Sightings of each kind that are kept; the others are counted. Of parts the longest are kept."""


class Counts(Recorded):
    """How much was looked at, and how often chance had a chance."""

    text_bytes: int = 0
    records: int = 0
    """JSONL records that were searched; 0 where the text was searched as it stands."""
    unparsed: int = 0
    """Those that could not be read as JSON."""
    intact_tests: int = 0
    """Different strings in the exact form of a code that were tried with the key."""
    altered_tests: int = 0
    """Different strings in other forms that were."""
    windows: int = 0
    """Places where part of a code could have been found."""
    more: int = 0
    """Sightings that were not kept."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in _COUNTED})


_COUNTED = tuple(Counts.model_fields)


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one part of a text, or of many."""

    sightings: tuple[Sighting, ...] = ()
    counts: Counts = field(default_factory=Counts)

    def __add__(self, other: "Tally") -> "Tally":
        return kept((*self.sightings, *other.sightings), self.counts + other.counts)


def kept(sightings: tuple[Sighting, ...], counts: Counts) -> Tally:
    """As many as are kept, in the order in which they came."""
    if len(sightings) <= MAX_SIGHTINGS:
        return Tally(sightings, counts)
    chosen: set[int] = set()
    for kind in Kind:
        numbers = [n for n, s in enumerate(sightings) if s.kind is kind]
        if kind is Kind.PART:
            numbers = nlargest(MAX_SIGHTINGS, numbers, key=lambda n: sightings[n].characters)
        chosen.update(numbers[:MAX_SIGHTINGS])
    left = tuple(s for n, s in enumerate(sightings) if n in chosen)
    more = Counts(more=len(sightings) - len(left))
    return Tally(left, counts + more)

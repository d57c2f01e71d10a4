"""The text of a ``/metrics`` page as values: bounded, and never an exception.

What a server writes there is other people's text. A line is read by itself, so that a bad one can be
named and names stay as they were sent.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client.parser import text_string_to_metric_families

MAX_TEXT_CHARS = 4_000_000
MAX_LINE_CHARS = 2_048
"""The parser's time grows with the square of a line."""
MAX_READ_CHARS = 1_000_000
"""Of the lines that are not passed over: the worst that fits takes half a second, 500 samples 10 ms."""
MAX_SAMPLES = 20_000

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Fault(StrEnum):
    """What is wrong with a text."""

    TEXT_TOO_LONG = "text_too_long"
    TOO_MUCH_TO_READ = "too_much_to_read"
    LINE_TOO_LONG = "line_too_long"
    TOO_MANY_SAMPLES = "too_many_samples"
    NO_SAMPLE = "no_sample"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A text that is none of metrics.

    Attributes:
        line: the first bad one, counted from 1; 0 when it is the whole text.
    """

    fault: Fault
    line: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value. NaN and infinities occur; labels are sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...] = field(repr=False)  # other people's text
    value: float

    def label(self, name: str) -> str | None:
        """The label's value; None without it."""
        return next((value for label, value in self.labels if label == name), None)


@dataclass(frozen=True, slots=True)
class Exposition:
    """The samples of a text, each series once: of duplicates the first, as Prometheus takes it."""

    samples: tuple[Sample, ...] = ()

    def named(self, name: str, **labels: str) -> tuple[Sample, ...]:
        """Samples of a metric, with these labels if any are given."""
        return tuple(
            sample
            for sample in self.samples
            if sample.name == name and all(sample.label(k) == v for k, v in labels.items())
        )

    def total(self, name: str, **labels: str) -> float | None:
        """Sum over the metric's series; None when there is none."""
        found = self.named(name, **labels)
        return sum(sample.value for sample in found) if found else None

    def by_label(self, name: str, label: str) -> tuple[tuple[str | None, float], ...]:
        """A label's values, in order of appearance, with the sum of each. None: without the label."""
        sums: dict[str | None, float] = {}
        for sample in self.named(name):
            value = sample.label(label)
            sums[value] = sums.get(value, 0.0) + sample.value
        return tuple(sums.items())


def parse(text: str, only: Collection[str] | None = None) -> Exposition | Malformed:
    """The samples of a text, or what is wrong with it.

    Args:
        only: names of metrics; the lines of all others are passed over, whatever they say.
    """
    if len(text) > MAX_TEXT_CHARS:
        return Malformed(Fault.TEXT_TOO_LONG)
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    read_chars = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not _is_wanted(line, only):
            continue
        if len(line) > MAX_LINE_CHARS:
            return Malformed(Fault.LINE_TOO_LONG, number)
        read_chars += len(line)
        if read_chars > MAX_READ_CHARS:
            return Malformed(Fault.TOO_MUCH_TO_READ, number)
        sample = _sample(line)
        if sample is None:
            return Malformed(Fault.NO_SAMPLE, number)
        if len(found) == MAX_SAMPLES:
            return Malformed(Fault.TOO_MANY_SAMPLES, number)
        found.setdefault((sample.name, sample.labels), sample)
    return Exposition(tuple(found.values()))


def _is_wanted(line: str, only: Collection[str] | None) -> bool:
    start = line[:MAX_LINE_CHARS].lstrip()
    if not start or start.startswith("#"):
        return False
    name = _NAME.match(start)
    return only is None or (name is not None and name[0] in only)


def _sample(line: str) -> Sample | None:
    try:
        families = list(text_string_to_metric_families(line))
        (sample,) = (sample for family in families for sample in family.samples)
        return Sample(sample.name, tuple(sorted(sample.labels.items())), float(sample.value))
    except Exception:  # the parser says of no error that it raises it, and the text may be anything
        return None

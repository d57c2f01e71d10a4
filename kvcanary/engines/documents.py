"""What one server answered, by the path that was asked. Other people's data: read strictly, never kept.

Every helper here gives None for what is not exactly of the shape that it reads.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvcanary.engines.exposition import Exposition, Sample

MAX_NUMBER = 1 << 53
"""Beyond it a float skips whole numbers."""
MAX_ENTRIES = 4_096
"""Of a list that a server sends: ranks, slots, models."""
MAX_NAME = 256

_VERSION = re.compile(
    r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){1,3}(?:[._-]?(?:a|b|rc|post|dev)[0-9]{1,6}){0,3})"
)


@dataclass(frozen=True, slots=True)
class Want:
    """A document that an engine is asked for. ``metrics``: text of metrics, else JSON."""

    path: str
    metrics: bool = False


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of one server that could be read. In no ``repr``: they hold keys in clear."""

    values: Mapping[str, object] = field(default_factory=dict, repr=False)
    """JSON by path."""
    pages: Mapping[str, Exposition] = field(default_factory=dict, repr=False)
    """Metrics by path."""

    def value(self, want: Want) -> object:
        """The JSON; None without."""
        return self.values.get(want.path)

    def fields(self, want: Want) -> Mapping[str, object]:
        """The fields of a JSON object; none where it is no object."""
        return fields(self.value(want))

    def page(self, want: Want) -> Exposition:
        """The metrics; an empty page without."""
        return self.pages.get(want.path, _NOTHING)


_NOTHING = Exposition()


def fields(value: object) -> Mapping[str, object]:
    """A JSON object's fields; none where it is no object."""
    return value if isinstance(value, Mapping) else {}


def entries(value: object) -> Sequence[object]:
    """The entries of a JSON list, up to `MAX_ENTRIES`; none where it is no list."""
    return value[:MAX_ENTRIES] if isinstance(value, list | tuple) else ()


def number(value: object) -> int | None:
    """A whole number from 0 on, as JSON has it."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < MAX_NUMBER else None  # type: ignore[operator,return-value]


def positive(value: object) -> int | None:
    """A whole number from 1 on: a pool, a page or a limit of 0 tokens is none."""
    return number(value) or None


def fraction(value: object) -> float | None:
    """A number above 0 and up to 1."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real and 0 < value <= 1 else None  # type: ignore[operator,arg-type]


def amount(value: object) -> float | None:
    """A finite number above 0."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real and 0 < value < MAX_NUMBER else None  # type: ignore[operator,arg-type]


def truth(value: object) -> bool | None:
    """A JSON boolean."""
    return value if isinstance(value, bool) else None


def name(value: object) -> str | None:
    """What a model may be called: text that a terminal shows and a request can repeat."""
    fine = isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()
    return value if fine else None  # type: ignore[return-value]


def version(value: object) -> str | None:
    """A version without its local part; anything else is server text and is not kept."""
    text = value.partition("+")[0] if isinstance(value, str) and len(value) <= 64 else ""
    match = _VERSION.fullmatch(text)
    return match[1] if match else None


def whole(sample: Sample) -> int | None:
    """A gauge that counts tokens, pages or blocks."""
    value = sample.value
    return int(value) if 0 <= value < MAX_NUMBER and value == int(value) else None


def in_label(sample: Sample, label: str) -> int | None:
    """A whole number that stands in a label."""
    text = sample.label(label)
    return int(text) if text is not None and re.fullmatch("[0-9]{1,15}", text) else None


def least(page: Exposition, metric: str) -> int | None:
    """The smallest of a gauge's series above 0; None when one is no count."""
    values = [whole(sample) for sample in page.named(metric)]
    known = [value for value in values if value]
    return min(known) if known and len(known) == len(values) else None


def by_rank(page: Exposition, metric: str, label: str) -> Iterator[tuple[int, Sample]]:
    """A metric's series with the rank in a label; rank 0 where they have none."""
    for sample in page.named(metric):
        rank = in_label(sample, label) if sample.label(label) is not None else 0
        if rank is not None and rank < MAX_ENTRIES:
            yield rank, sample


STARTED = "process_start_time_seconds"


def started_at(page: Exposition) -> float | None:
    """When the process started. None also where several processes tell different times."""
    times = {sample.value for sample in page.named(STARTED)}
    time = times.pop() if len(times) == 1 else None
    return time if time is not None and 0 < time < MAX_NUMBER else None

"""Axes: from a value to its place in a picture, and the round values that stand beside it.

Places are percent of the picture's width or height, so that a browser can stretch a picture to any width and
leave its letters as large as they are.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvcanary.report.html.words import unit_of

MARGIN = 1.03
"""How much longer an axis is than the largest value on it."""
MOST_TICKS = 6
"""Ticks that find room on a phone."""
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value: ``at`` percent from the beginning of its axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From 0 to ``most``."""

    most: float

    @classmethod
    def holding(cls, values: Iterable[float]) -> "Axis":
        """An axis on which all these values have their place."""
        return cls(max(values, default=0.0) * MARGIN or 1.0)

    def at(self, value: float) -> float:
        """Percent of the axis, two digits after the point; what lies beyond its ends is at them."""
        return round(100.0 * min(1.0, max(0.0, value / self.most)), 2)

    def holds(self, value: float) -> bool:
        """Whether a value lies on it."""
        return 0 <= value <= self.most

    def ticks(self, text: Callable[[float], str], most: int = MOST_TICKS) -> tuple[Tick, ...]:
        """Round values from 0 on, no more than ``most``."""
        rough = self.most / (most - 1)
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * s for s in _STEPS if size * s >= rough * (1 - 1e-9))
        count = min(most, int(self.most / step + 1e-9) + 1)
        return tuple(Tick(self.at(n * step), text(n * step)) for n in range(count))

    def moments(self) -> tuple[Tick, ...]:
        """Ticks of an axis of seconds, round in the unit that its length is told in."""
        size, unit = unit_of(self.most)
        return Axis(self.most / size).ticks(lambda value: f"{value:g} {unit}")

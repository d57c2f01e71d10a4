"""What a picture is made of: marks at their places, the words around them, and the same as a table.

All values are plain and final: the template writes them down and computes nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kvcanary.report.html.axis import Tick

MAX_FINDINGS = 100
"""Findings that are on the page: pictures point to no others."""
MAX_ROWS = 40
"""Rows of a table that stands for a picture."""
LARGEST = 2.2
"""How many times as wide as for one request a mark may be."""
LETTER = 2.1
"""Percent of a picture's width that a letter of a badge or flag takes on a phone."""


class Tone(StrEnum):
    """What a mark says. Each has a colour and a shape of its own."""

    LEAK = "leak"
    LOST = "lost"
    KEPT = "kept"
    REFUSED = "refused"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Mark:
    """A shape at (``x``, ``y``) percent from the left and the top; its area grows with ``scale`` squared."""

    x: float
    tone: Tone
    title: str
    y: float = 50.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    """From ``x`` on, ``width`` percent wide."""

    x: float
    width: float
    tone: Tone
    title: str


@dataclass(frozen=True, slots=True)
class Flag:
    """A pointer with a few letters beneath: the number of a finding."""

    x: float
    text: str
    anchor: str = "middle"
    """Which part of the letters stands at ``x``: those at an edge lie within the picture."""


@dataclass(frozen=True, slots=True)
class Curve:
    """An area as a path, in a box of 1,000 by 100 that is stretched over its lane; and its upper edge."""

    area: str
    edge: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of a picture: its name, what stands at its end, and its marks. ``height`` is in pixels."""

    name: str
    note: str = ""
    height: int = 22
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    flags: tuple[Flag, ...] = ()
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class Guide:
    """A line through all lanes, with a letter above it and its meaning below; ``x`` is None beyond the picture."""

    letter: str
    x: float | None
    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Badge:
    """The letters of the guides that share a place."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the axis, hatched through all lanes."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """Rows above one another that share an axis."""

    kind: ClassVar[str] = "lanes"
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    axis: str
    guides: tuple[Guide, ...] = ()
    band: Band | None = None
    legend: tuple[tuple[Tone, str], ...] = ()

    @property
    def badges(self) -> tuple[Badge, ...]:
        """The letters above the lines."""
        return badges(self.guides)


@dataclass(frozen=True, slots=True)
class Line:
    """From one point to another, in percent from the left and the top."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """Marks on two axes."""

    kind: ClassVar[str] = "scatter"
    marks: tuple[Mark, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    axis: str
    line: Line | None = None
    legend: tuple[tuple[Tone, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """``level``: from 0 (nothing) to 4 (the most)."""

    text: str
    level: int = 0
    tone: Tone = Tone.LEAK


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows against columns. It is a table already, and needs no other."""

    kind: ClassVar[str] = "matrix"
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The picture in figures; the first cell of a row is its name."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0
    """Rows that were left out."""

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
        """No more than ``MAX_ROWS`` of the rows."""
        every = [tuple(row) for row in rows]
        return cls(tuple(columns), tuple(every[:MAX_ROWS]), max(0, len(every) - MAX_ROWS))


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with what it shows (``caption``), what is left out of it (``notes``) and its figures."""

    id: str
    title: str
    caption: str
    drawing: Lanes | Scatter | Matrix
    table: Table | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A picture that the record has no data for."""

    id: str
    title: str
    why: str


def scale(count: int) -> float:
    """How many times as wide as for one request a mark for so many is."""
    return round(min(LARGEST, math.sqrt(1 + (count - 1) / 4)), 2)


def badges(guides: Sequence[Guide]) -> tuple[Badge, ...]:
    """The letters above the guides."""
    placed = sorted((guide.x, guide.letter) for guide in guides if guide.x is not None)
    return tuple(
        Badge(group[0][0], _letters([w for _, w in group])) for group in together(placed, _letters)
    )


def _letters(letters: Sequence[str]) -> str:
    """They follow one another, so the first and the last say it all."""
    return " ".join(letters) if len(letters) < 3 else f"{letters[0]}\u2013{letters[-1]}"


def together(
    placed: Iterable[tuple[float, str]], text: Callable[[Sequence[str]], str]
) -> list[list[tuple[float, str]]]:
    """Names at their places, from the left, those whose ``text`` would lie over one another in one group."""
    groups: list[list[tuple[float, str]]] = []
    for one in placed:
        groups.append([one])
        while len(groups) > 1 and _ends(groups[-2], text)[1] > _ends(groups[-1], text)[0]:
            last = groups.pop()
            groups[-1] += last
    return groups


def _ends(
    group: Sequence[tuple[float, str]], text: Callable[[Sequence[str]], str]
) -> tuple[float, float]:
    """Where a group's text begins and ends, in percent: about its first place, and within the picture."""
    width = LETTER * (len(text([name for _, name in group])) + 2)
    left = min(max(0.0, group[0][0] - width / 2), 100.0 - width)
    return left, left + width


def more(count: int, what: str) -> tuple[str, ...]:
    """The note that so many were left out; nothing where none was."""
    return (f"{count:,} more {what} are not drawn.",) if count > 0 else ()

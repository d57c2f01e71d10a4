"""What the fault-injecting connector does wrong: written by a test, read by the engine before each transfer.

Two processes share this module, and one of them is vLLM's: only the standard library here.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Mode(StrEnum):
    """Which pages of a transfer are not what they should be. The engine hears of success each time."""

    NONE = "none"
    ALL = "all"
    """No page is written: the answer is computed from what others left in them."""
    HEAD = "head"
    """The first quarter is not written."""
    MIDDLE = "middle"
    """The middle quarter is not written."""
    TAIL = "tail"
    """The last eighth is not written."""
    OTHER = "other"
    """The pages of the prompt that was transferred before are written instead."""
    LATE = "late"
    """Written some steps later, whoever owns the pages by then."""


LATE_STEPS = 24
"""Forward passes between the report of success and the write."""

_PARTS = {Mode.HEAD: (0, 2), Mode.MIDDLE: (3, 5), Mode.TAIL: (7, 8)}
"""Eighths of the transferred pages, from and to."""


@dataclass(frozen=True)
class Fault:
    """A mode and the transfers that it hits.

    Attributes:
        longer_than: tokens; only transfers of longer prompts are hit.
        every: each so-manieth of those.
    """

    mode: Mode = Mode.NONE
    longer_than: int = 0
    every: int = 1

    def hits(self, tokens: int, count: int) -> bool:
        """``count``: how many transfers were long enough so far, this one included."""
        return self.mode is not Mode.NONE and tokens > self.longer_than and count % self.every == 0

    def missing(self, pages: int) -> range:
        """Pages of a transfer of so many that are left as they were."""
        if self.mode in (Mode.ALL, Mode.LATE):
            return range(pages)
        if self.mode not in _PARTS:
            return range(0)
        first, end = (eighths * pages // 8 for eighths in _PARTS[self.mode])
        return range(first, max(end, first + 1))

    def write(self, path: Path) -> None:
        """Atomically: the engine may read at any time."""
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(path)

    @staticmethod
    def read(path: Path) -> "Fault":
        """No file: no fault."""
        if not path.exists():
            return Fault()
        told = json.loads(path.read_text())
        return Fault(Mode(told["mode"]), told["longer_than"], told["every"])


@dataclass(frozen=True)
class Transfer:
    """One line of the connector's log: the truth about one transfer.

    Attributes:
        request: the engine's name of the request; the client's ``X-Request-Id`` is a part of it.
        tokens: that were to be transferred.
        pages, wrong_pages: how many there were, and how many of them did not hold this prompt.
    """

    request: str
    tokens: int
    mode: Mode
    pages: int
    wrong_pages: int

    def append(self, path: Path) -> None:
        with path.open("a") as log:
            log.write(f"{json.dumps(asdict(self))}\n")


def transfers(path: Path) -> tuple[Transfer, ...]:
    """The whole log."""
    if not path.exists():
        return ()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return tuple(Transfer(**{**line, "mode": Mode(line["mode"])}) for line in lines)

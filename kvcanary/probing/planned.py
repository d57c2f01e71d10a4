"""What will be sent: requests in stages, before anything is."""

from dataclasses import dataclass

from kvcanary.canary.prompt import Position, Shape
from kvcanary.probing.grammar import Wait
from kvcanary.record.exchange import Expectation, Purpose
from kvcanary.record.manner import USUAL, Manner
from kvcanary.record.run import UnmetNeed


@dataclass(frozen=True, slots=True)
class Pad:
    """How many tokens a text shall have that was counted before: ``exactly`` so many, or the next
    ``multiple``; and ``plus``."""

    exactly: int | None = None
    multiple: int | None = None
    plus: int = 0

    def target(self, counted: int) -> int:
        """Tokens that it shall have.

        >>> Pad(multiple=16, plus=1).target(100), Pad(exactly=700).target(100)
        (113, 700)
        """
        if self.exactly is not None:
            return self.exactly + self.plus
        if self.multiple is None:
            return counted
        return -(-counted // self.multiple) * self.multiple + self.plus

    @property
    def most(self) -> int:
        """Tokens that it may add, where it does not say how many there shall be."""
        return (self.multiple or 0) + max(0, self.plus)


AS_IT_WAS = Pad()


@dataclass(frozen=True, slots=True)
class Planned:
    """One exchange to be sent."""

    number: int
    probe: str
    group: str
    purpose: Purpose
    tenant: int
    tokens: int
    asked: Position
    max_tokens: int
    rank: int | None = None
    """DP rank to steer it to; None leaves it to the router."""
    shape: Shape | None = None
    """Given when an earlier run is replayed word for word; else made from ``tokens`` when it is sent."""
    drop_at: float | str | None = None
    """When to let go of it: see ``kvcanary.probing.grammar.Abort``."""
    expected: Expectation = Expectation.EITHER
    again: int | None = None
    """Number of the request whose text is sent again; ``tokens`` is an estimate then."""
    pad: Pad = AS_IT_WAS
    manner: Manner = USUAL


@dataclass(frozen=True, slots=True)
class Stage:
    """Exchanges that are sent in this order, ``in_flight`` at a time, bystanders apart; ``hold``: all at
    once, then released. One without exchanges only waits."""

    group: str
    exchanges: tuple[Planned, ...]
    in_flight: int
    hold: bool = False
    danger: float = 1.0
    """How much its first answer is worth beside those of other stages."""
    together: str | None = None
    """Neighbours with the same word here are sent at the same time."""
    wait: Wait | None = None
    crowd: bool = False
    """So many at a time on purpose: not one by one, whatever counters could tell then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be sent, and what will not with the reason."""

    stages: tuple[Stage, ...]
    skipped: tuple[str, ...]
    unmet: tuple[UnmetNeed, ...] = ()

    @property
    def exchanges(self) -> tuple[Planned, ...]:
        return tuple(e for stage in self.stages for e in stage.exchanges)

    @property
    def tokens(self) -> int:
        """Prompt tokens of the whole plan."""
        return sum(e.tokens for e in self.exchanges)

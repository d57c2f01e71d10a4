"""How full the pools were while the run lasted."""

from typing import Self

from pydantic import Field, model_validator

from kvcanary.record.base import Recorded

MAX_STEPS = 512
"""Steps that a series may have. A longer run has longer steps."""

Column = tuple[int | None, ...]


class Series(Recorded):
    """Readings of one rank of a worker, as columns: one entry for each step.

    A step holds the extremes of one reading or more. None: not told in this step; an empty column: not
    told in any. A run that was cut off and went on has one of each part.
    """

    worker: str
    """Short name, such as ``P1`` or ``D1.2``."""
    source: str
    """Where it was read."""
    pool_tokens: int | None = None
    began_at: float | None = None
    """When the sampling began, Unix time."""
    at_seconds: tuple[float, ...] = Field(default=(), max_length=MAX_STEPS)
    """When the last reading of each step was made, since the sampling began."""
    used_tokens: Column = ()
    """The most tokens in use."""
    least_tokens: Column = ()
    """The fewest tokens in use."""
    running: Column = ()
    """The most requests that ran."""
    queued: Column = ()
    """The most requests that waited."""
    failures: Column = ()
    """Failed transfers and hand-overs, counted since the worker's process started."""
    last_tokens: int | None = None
    """Tokens in use when the run was over."""
    unanswered: int = 0
    """Readings that gave nothing."""

    @model_validator(mode="after")
    def _columns_are_equal(self) -> Self:
        columns = (self.used_tokens, self.least_tokens, self.running, self.queued, self.failures)
        if any(len(column) not in (0, len(self.at_seconds)) for column in columns):
            raise ValueError("the columns of a series are empty or of equal length")
        return self

    @property
    def peak_tokens(self) -> int | None:
        """The most tokens that were in use."""
        return _most(self.used_tokens)

    @property
    def peak_running(self) -> int | None:
        """The most requests that ran."""
        return _most(self.running)

    @property
    def peak_queued(self) -> int | None:
        """The most requests that waited."""
        return _most(self.queued)

    @property
    def new_failures(self) -> int | None:
        """Failures that were counted while the run lasted."""
        known = [count for count in self.failures if count is not None]
        return max(0, known[-1] - known[0]) if known else None


def _most(column: Column) -> int | None:
    return max((value for value in column if value is not None), default=None)

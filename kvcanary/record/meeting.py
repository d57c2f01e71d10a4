"""Which workers an exchange met."""

from kvcanary.record.base import Recorded


class Pair(Recorded):
    """A prefill and a decode worker (with their DP ranks) that served one request together.

    A unified worker stands in both places.
    """

    prefill: str
    decode: str

    def __str__(self) -> str:
        return self.prefill if self.prefill == self.decode else f"{self.prefill}-{self.decode}"


class Topology(Recorded):
    """The workers and ranks that a request may meet, by short name, and whether meetings can be seen."""

    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    visible: bool
    """Whether every worker tells its counters."""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every pair that may serve a request."""
        if self.prefill == self.decode:
            return tuple(Pair(prefill=w, decode=w) for w in self.prefill)
        return tuple(Pair(prefill=p, decode=d) for p in self.prefill for d in self.decode)

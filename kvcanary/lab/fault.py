"""What is known about one fault of the lab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvcanary.lab.chances import FaultKey
from kvcanary.lab.scenario import Scenario

Bring = Callable[[Scenario], Scenario]


@dataclass(frozen=True)
class Fault:
    """``mechanism``: the kind, as probes name it. ``where``: module and edge in the lab.
    ``needs``: the traffic without which nothing happens. ``caller_sees`` and ``check_says`` are for
    people. ``usual_rate``: odds at each opportunity unless another rate is chosen. ``usual_above``: only for
    longer prompts, unless another length is chosen. ``blind``: why no client can see it. ``by_time``: it is
    seen by how long things take, and by nothing else."""

    key: FaultKey
    mechanism: str
    where: str
    wrong: str
    needs: str
    caller_sees: str
    check_says: str
    references: tuple[str, ...]
    usual_rate: float = 1.0
    usual_above: Callable[[Scenario], int] | None = None
    blind: str | None = None
    by_time: bool = False
    brings: Bring = lambda scenario: scenario

"""A run against a lab of its own in this process, with the lab's truth beside the record."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.lab import (
    Clock,
    FreeListPolicy,
    Lab,
    Routing,
    WallClock,
    scenario_named,
    with_fault,
    with_habit,
)
from kvcanary.probing.buying import NO_LIMIT, Budget
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.events import Listener
from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from kvcanary.verdict.claims import Claim, ExitCode, Verdict
from kvcanary.verdict.findings import Severity

T = TypeVar("T")
SITE_KEY = SiteKey(bytes(range(32)))
FAST = 20.0
"""Lab seconds in a second: the lab's waits are not what these tests are about."""
ACCUSING = {Severity.LEAK, Severity.CORRUPTION, Severity.AVAILABILITY, Severity.ACCOUNTING}
"""What must never be said of a deployment that has nothing but a habit."""


@dataclass(frozen=True)
class Setup:
    """A lab and how it is checked, with the same text each time. ``promised``: whether the context is told
    (``--context``)."""

    scenario: str = "healthy"
    habits: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    context: int = 4_096
    promised: bool = True
    suite: str = "smoke"
    budget: Budget = NO_LIMIT
    seed: int = 0
    front_door_only: bool = False
    stream: bool = True
    only_plan: bool = False
    routing: Routing | None = None
    free_list: FreeListPolicy | None = None
    claimed_context: int | None = None
    """What is promised, where it is not the lab's own."""

    def lab(self, clock: Clock | None = None) -> Lab:
        """The lab, not yet running."""
        scenario = scenario_named(self.scenario).scaled(context_tokens=self.context)
        for habit in self.habits:
            scenario = with_habit(scenario, habit)
        for fault in self.faults:
            scenario = with_fault(scenario, fault)
        if self.routing:
            scenario = replace(scenario, routing=self.routing)
        if self.free_list:
            scenario = scenario.with_free_list(self.free_list)
        return Lab(
            scenario,
            seed=self.seed,
            front_door_only=self.front_door_only,
            clock=clock or WallClock(FAST),
        )

    def options(self, record: Path) -> Options:
        """The options of the run."""
        return Options(
            suite=self.suite,
            budget=self.budget,
            only_plan=self.only_plan,
            record=record,
            site_key=SITE_KEY,
            identity=RunIdentity(1_000 + self.seed, bytes([self.seed % 256, self.only_plan] * 8)),
        )


@dataclass(frozen=True)
class Ran:
    """What came of a run."""

    record: RunRecord
    lab: Lab

    @property
    def verdict(self) -> Verdict:
        assert self.record.verdict
        return self.record.verdict

    @property
    def code(self) -> ExitCode:
        return self.verdict.exit_code

    @property
    def accused(self) -> set[Severity]:
        return {f.severity for f in self.record.findings} & ACCUSING

    @property
    def rules(self) -> set[str]:
        return {f.rule for f in self.record.findings}

    def claim(self, name: str) -> Claim:
        return next(c for c in self.verdict.claims if c.name == name)

    def sent(self, *purposes: str) -> list[Exchange]:
        return [e for e in self.record.exchanges if e.purpose in purposes]


async def run_in(lab: Lab, setup: Setup, listener: Listener | None = None) -> RunRecord:
    """One run against a lab that is running."""
    endpoint = Endpoint(f"{lab.url}/v1", lab.model_name, stream=setup.stream)
    with TemporaryDirectory() as folder:
        options = setup.options(Path(folder) / "record.jsonl")
        context = (setup.claimed_context or setup.context) if setup.promised else None
        target = Target(f"lab:{setup.scenario}", endpoint, context)
        return (await run_check(target, options, listener)).record


def ran(setup: Setup, clock: Callable[[], Clock] | None = None) -> Ran:
    """The whole run from the start of the lab to its end."""

    async def whole() -> Ran:
        running: AbstractAsyncContextManager[Lab] = setup.lab(clock() if clock else None)
        async with running as lab:
            return Ran(await run_in(lab, setup), lab)

    return finished(whole())


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has a loop of its own."""
    return asyncio.run(work)

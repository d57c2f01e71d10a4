"""A deployment without HTTP, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kvcanary.lab import ExchangeTruth, ManualClock, Scenario
from kvcanary.lab.adapters import BASE, Adapter
from kvcanary.lab.deployment import Deployment
from kvcanary.lab.objections import Objection
from kvcanary.lab.room import Delta, End, Finished, Room, Sampling
from tests.lab.talk import TOKENIZER, run

T = TypeVar("T")


@dataclass
class Stage:
    """A deployment whose time stands still. ``image``: what becomes of each text before it is sent."""

    deployment: Deployment
    clock: ManualClock
    image: Callable[[str], str] = str

    def submit(
        self,
        text: str,
        name: str = "r",
        *,
        salt: str = "",
        adapter: Adapter = BASE,
        objection: Objection | None = None,
        rank: int | None = None,
        **sampling: Any,
    ) -> Room:
        """Hand in a request."""
        return self.deployment.submit(
            name,
            TOKENIZER.encode(self.image(text)),
            Sampling(**{"max_new_tokens": 20, **sampling}),
            salt=salt,
            streaming=False,
            adapter=adapter,
            objection=objection,
            rank=rank,
        )

    async def answer(self, text: str, name: str = "r", **fields: Any) -> str:
        """What is answered to a request that is alone."""
        room = self.submit(text, name, **fields)
        await self.clock.advance(60)
        return said(room)[0]

    def truth(self, name: str) -> ExchangeTruth:
        """What happened to the request of that name."""
        found = self.deployment.truth.ledger.exchange(name)
        assert found is not None
        return found

    def holds_nothing(self) -> bool:
        """Whether every page of both pools is free, or cached and evictable."""
        return self.deployment.open_requests == 0 and all(
            rank.pool.free_pages + rank.evictable_pages == rank.pool.page_count
            and rank.running_requests == rank.queued_requests == 0
            for rank in self.deployment.ranks
        )


@asynccontextmanager
async def stage(scenario: Scenario, seed: int = 1) -> AsyncIterator[Stage]:
    """The deployment of a scenario, running."""
    clock = ManualClock()
    deployment = Deployment(scenario, seed=seed, tokenizer=TOKENIZER, clock=clock)
    deployment.start()
    try:
        yield Stage(deployment, clock)
    finally:
        await deployment.stop()


def on_stage(scenario: Scenario, play: Callable[[Stage], Coroutine[Any, Any, T]]) -> T:
    """Play a scene, and hand back what it returns."""

    async def scene() -> T:
        async with stage(scenario) as set_up:
            return await play(set_up)

    return run(scene())


def said(room: Room) -> tuple[str, End | None]:
    """The text that came so far and the end, if there was one."""
    text, end = "", None
    while not room.events.empty():
        event = room.events.get_nowait()
        if isinstance(event, Delta):
            text += event.text
        else:
            end = event
            text += event.tail if isinstance(event, Finished) else ""
    return text, end

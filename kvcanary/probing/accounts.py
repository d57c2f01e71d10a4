"""Keeps the workers' accounts: their counters before and after each stage, and what was sent in between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kvcanary.deployment.facts import Role
from kvcanary.probing.sender import Sender
from kvcanary.record.window import Window
from kvcanary.telemetry.meter import Meter, Quiet


class Accounts:
    """One account for each stage, where every worker tells its counters. The first reading of a stage is
    the last one of the stage before."""

    def __init__(self, meter: Meter | None, sender: Sender) -> None:
        self._meter = meter if meter and meter.topology.visible else None
        self._sender = sender
        self._last: Quiet | None = None

    @asynccontextmanager
    async def window(self, group: str) -> AsyncIterator[None]:
        """Record what the workers counted meanwhile. What ends by an exception is not recorded."""
        if self._meter is None:
            yield
            return
        first = len(self._sender.exchanges)
        before = self._last or await self._meter.quiet()
        yield
        after = self._last = await self._meter.quiet()
        sent = self._sender.exchanges[first:]
        if sent:
            self._sender.journal.append(
                "window", _window(self._meter, group, [e.number for e in sent], before, after)
            )


def _window(meter: Meter, group: str, sent: list[int], before: Quiet, after: Quiet) -> Window:
    quiet = (
        None
        if before.is_quiet is None or after.is_quiet is None
        else before.is_quiet and after.is_quiet
    )
    return Window(
        group=group,
        exchanges=tuple(sorted(sent)),
        prefill=meter.work(before.reading, after.reading, Role.PREFILL),
        decode=meter.work(before.reading, after.reading, Role.DECODE),
        quiet=quiet,
        held_tokens=meter.held(before.reading, after.reading),
    )

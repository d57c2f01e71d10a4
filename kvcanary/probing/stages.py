"""How the stages of a plan are sent: readers in turn, victims held and released, prompts dropped, waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

from kvcanary.probing.accounts import Accounts
from kvcanary.probing.client import Client
from kvcanary.probing.courier import Courier
from kvcanary.probing.grammar import FIRST_TOKEN, Wait
from kvcanary.probing.high_water import IDLE, high_water
from kvcanary.probing.overhead import EXTRA_PER_PAIR
from kvcanary.probing.planned import Planned, Stage
from kvcanary.probing.roles import MAX_VICTIMS
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.telemetry.meter import Meter

ALONE = (Purpose.READER, Purpose.CONTROL, Purpose.CONFIRMATION, Purpose.BYSTANDER)
"""Sent one at a time where workers' counters are to tell whom they met."""
POLL_SECONDS = 1.0
"""Between two looks at a pool that is waited for."""

PoolGauge = Callable[[], Awaitable[int | None]]
"""Tokens in use in the decode pool now, by the deployment's own figures; None where it does not tell."""


class Stages:
    """Sends stages of a plan to one deployment."""

    def __init__(
        self,
        courier: Courier,
        numbers: Callable[[], int],
        gauge: PoolGauge | None,
        meter: Meter | None,
        accounts: Accounts,
        pool_tokens: int | None,
    ) -> None:
        self._courier, self._next_number = courier, numbers
        self._gauge, self._meter, self._pool_tokens = gauge, meter, pool_tokens
        self._accounts = accounts

    @property
    def alone(self) -> bool:
        """Whether readers go one at a time, so that counters tell which of several pairs served them."""
        topology = self._meter.topology if self._meter else None
        return topology is not None and topology.visible and len(topology.pairs) > 1

    async def send(self, stages: Sequence[Stage]) -> None:
        """In their order; neighbours that belong together at the same time."""
        for batch in batches(stages):
            self._courier.queued = tuple(t for stage in batch for t in _at_once(stage))
            self._courier.queued_output = sum(map(_output_at_once, batch))
            for stage in batch:
                tokens = sum(e.tokens for e in stage.exchanges)
                self._courier.sender.listener.phase(stage.group, len(stage.exchanges), tokens)
            async with self._accounts.window(batch[0].group):
                await self._send_batch(batch)
            self._courier.queued, self._courier.queued_output = (), 0
            self._courier.raise_if_enough()

    async def _send_batch(self, batch: Sequence[Stage]) -> None:
        if len(batch) == 1:
            await self._send(batch[0])
            return
        async with asyncio.TaskGroup() as group:
            for stage in batch:
                group.create_task(self._read(stage))

    async def _send(self, stage: Stage) -> None:
        if stage.wait:
            await self._wait(stage.wait)
        elif stage.hold:
            await self._hold(stage)
        elif self._meter and self.alone and not stage.crowd:
            await self._read_and_meet(stage, self._meter)
        else:
            await self._read(stage)

    async def ask(self, planned: Planned) -> Exchange | None:
        """One request by itself, dropped where it is to be, and seen where counters tell."""
        if planned.drop_at is not None:
            return await self._drop(planned)
        singly = self.alone and planned.purpose in ALONE
        return await self._courier.send(planned, meter=self._meter if singly else None)

    async def _read(self, stage: Stage) -> None:
        """Readers of one stratum, so many at a time."""
        everybody = asyncio.Semaphore(max(self._courier.limits.concurrency, stage.in_flight))
        readers = asyncio.Semaphore(stage.in_flight)

        async def one(planned: Planned) -> None:
            # a bystander goes beside the readers: in their place, its slot would later hold one reader
            # more than the pool has room for
            beside = planned.purpose is Purpose.BYSTANDER
            async with nullcontext() if beside else readers, everybody:
                if planned.drop_at is None:
                    await self._courier.send(planned)
                else:
                    await self._drop(planned)

        async with asyncio.TaskGroup() as group:
            for planned in stage.exchanges:
                group.create_task(one(planned))

    async def _read_and_meet(self, stage: Stage, meter: Meter) -> None:
        """Send until every pair of workers has been met in this stratum, or the router will not have it."""
        for planned in stage.exchanges:
            await self.ask(planned)
        readers = [p for p in stage.exchanges if p.purpose is Purpose.READER]
        unmet = set(map(str, meter.topology.pairs))
        for extra in range(EXTRA_PER_PAIR * len(meter.topology.pairs) if readers else 0):
            mine = (e for e in self._courier.exchanges if e.group == stage.group)
            met = {str(e.met) for e in mine if e.met and e.kept}
            if not unmet - met or not self._courier.affords(readers[0].tokens):
                break
            again = readers[extra % len(readers)]
            rank = _rank_of(sorted(unmet - met))
            await self.ask(replace(again, number=self._next_number(), rank=rank))

    async def _hold(self, stage: Stage) -> None:
        """Send all, wait until every one is being decoded (or has ended), read the gauge, let go."""
        await self._courier.room()
        release = asyncio.Event()
        started: set[int] = set()
        changed = asyncio.Event()

        def begin(planned: Planned) -> None:
            started.add(planned.number)
            changed.set()

        before = await self._meter.read() if self._meter else None
        idle_tokens = await self._gauge() if self._gauge else None
        async with self._streaming() as client, asyncio.TaskGroup() as group:
            tasks: dict[int, asyncio.Task[Exchange | None]] = {}
            for planned in stage.exchanges:
                task = group.create_task(
                    self._courier.send(
                        planned,
                        client=client,
                        on_first_token=lambda planned=planned: begin(planned),  # type: ignore[misc]
                        release=release,
                    )
                )
                task.add_done_callback(lambda _: changed.set())
                tasks[planned.number] = task
            while any(not task.done() and n not in started for n, task in tasks.items()):
                if self._courier.enough.is_set():
                    break
                changed.clear()
                await changed.wait()
            held = [p for p in stage.exchanges if not tasks[p.number].done()]
            used_tokens = await self._gauge() if self._gauge else None
            decoders: tuple[str, ...] = ()
            if self._meter and before:
                decoders = self._meter.decoders(before, await self._meter.read())
            note = high_water(sum(p.tokens for p in held), idle_tokens, used_tokens, decoders)
            self._courier.sender.journal.append("high_water", note)
            release.set()

    async def _drop(self, planned: Planned) -> Exchange | None:
        """Let go of it at its moment, or when the run ends."""
        calibration = self._courier.calibration
        fit = calibration.first_token if calibration else None
        release = asyncio.Event()
        on_first_token = release.set if planned.drop_at == FIRST_TOKEN else None
        seconds: float | None = None
        if isinstance(planned.drop_at, float | int) and fit:
            seconds = planned.drop_at * fit.expected_seconds(planned.tokens)
        async with self._streaming() as client, _set_when(release, self._courier.enough, seconds):
            return await self._courier.send(
                planned, client=client, on_first_token=on_first_token, release=release
            )

    async def _wait(self, wait: Wait) -> None:
        """For so long, or until the pool is as good as empty."""
        try:
            async with asyncio.timeout(wait.seconds):
                if wait.until is None or self._gauge is None or self._pool_tokens is None:
                    await self._courier.enough.wait()
                    return
                while not await self._idle(self._gauge, self._pool_tokens):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)  # a gauge tells when it is asked
        except TimeoutError:
            return

    async def _idle(self, gauge: PoolGauge, pool_tokens: int) -> bool:
        used = await gauge()
        return used is not None and used <= IDLE * pool_tokens

    def _streaming(self) -> Client:
        """Without a stream nobody can say when decoding has begun."""
        endpoint = replace(self._courier.sender.client.endpoint, stream=True)
        return Client(endpoint, concurrency=MAX_VICTIMS)


@asynccontextmanager
async def _set_when(
    release: asyncio.Event, enough: asyncio.Event, seconds: float | None
) -> AsyncIterator[None]:
    """Sets ``release`` after so many seconds, and when the run ends."""

    async def watch() -> None:
        try:
            async with asyncio.timeout(seconds):
                await enough.wait()
        except TimeoutError:
            pass
        release.set()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


def _at_once(stage: Stage) -> tuple[int, ...]:
    """Lengths of what a stage may have in flight at the same time: all victims, or so many readers."""
    lengths = sorted((e.tokens for e in stage.exchanges), reverse=True)
    beside = sum(e.purpose is Purpose.BYSTANDER for e in stage.exchanges)
    return tuple(lengths[: stage.in_flight + beside])


def _output_at_once(stage: Stage) -> int:
    """Tokens of answers that requests of a crowd may have to wait for: a pool that is full on purpose may hold
    one at a time. Others have room."""
    longest = sorted((e.max_tokens for e in stage.exchanges), reverse=True)
    return sum(longest[: stage.in_flight]) if stage.crowd else 0


def batches(stages: Sequence[Stage]) -> tuple[tuple[Stage, ...], ...]:
    """Neighbours that belong together; every other stage by itself."""
    found: list[tuple[Stage, ...]] = []
    for stage in stages:
        if stage.together is not None and found and found[-1][0].together == stage.together:
            found[-1] = (*found[-1], stage)
        else:
            found.append((stage,))
    return tuple(found)


def _rank_of(pairs: Sequence[str]) -> int | None:
    """The DP rank of the first unmet pair that has one (``P1-D1.2``): routers let requests be steered there."""
    ranks = (pair.rpartition(".")[2] for pair in pairs if "." in pair)
    return next((int(rank) for rank in ranks if rank.isdigit()), None)

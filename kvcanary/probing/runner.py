"""Runs a probe against a deployment: calibrate, control, plan, send, confirm.

Everything that is decided here is decided from recorded values; everything that is sent goes through
``Sender``. Nothing a server does raises: what keeps a run from being worth anything ends it with
``Stopped``, and the verdict is then inconclusive.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count

from kvcanary.canary.prompt import Position, Shape
from kvcanary.deployment.facts import Facts
from kvcanary.detect import foreign, ownership
from kvcanary.probing.accounts import Accounts
from kvcanary.probing.boundary import HALVINGS, bracket, narrow
from kvcanary.probing.buying import NO_LIMIT, Budget, buy, plan_note, tokens_allowed
from kvcanary.probing.calibrate import RETRIES, SHORT_OUTPUT, Calibrator
from kvcanary.probing.client import Client
from kvcanary.probing.grammar import Probe
from kvcanary.probing.high_water import high_water
from kvcanary.probing.limits import PROVISIONAL_CONTEXT, find_context
from kvcanary.probing.plan import Plan, Planned, Stage, make_plan, replay_plan
from kvcanary.probing.roles import BYSTANDER, DECOY, MAX_VICTIMS, READERS
from kvcanary.probing.sender import Letter, Sender
from kvcanary.probing.simulate import simulate
from kvcanary.probing.sizing import Calibration, TooShort
from kvcanary.probing.stopped import Stopped
from kvcanary.record.exchange import DECOYS, Exchange, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.telemetry.meter import Meter
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import unshown

SETUP_SECONDS = 120.0
"""Longest wait for a short request: the first inference may compile for 40 s."""

EXTRA_PER_PAIR = 2
"""Further readers of a stratum for each pair of workers, to have all of them met."""
ALONE = (Purpose.READER, Purpose.CONTROL, Purpose.CONFIRMATION)
"""Sent one at a time where workers' counters are to tell whom they met."""

SHOWN_AGAIN = 2
"""Confirmations of a stratum after which a part that none of its answers showed is given up."""
UNRECORDED = 64
"""Numbers that a run which was killed may have used for requests it did not come to record."""

PoolGauge = Callable[[], Awaitable[int | None]]
"""Tokens in use in the decode pool now, by the deployment's own figures; None where it does not tell."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use."""

    concurrency: int
    deadline_seconds: float
    budget: Budget = NO_LIMIT
    suite_tokens: str | None = None
    """The suite's own limit of tokens, as a length expression: holds where the budget has none."""
    stop_on_leak: bool = False
    bound: float | None = None
    """Rate of bad answers that each stratum has to be shown to stay below."""


class Runner:
    """One run of a suite's probes."""

    def __init__(
        self,
        sender: Sender,
        probes: Sequence[Probe],
        facts: Facts,
        gauge: PoolGauge | None,
        meter: Meter | None,
        limits: Limits,
    ) -> None:
        self._sender, self._probes, self._facts = sender, probes, facts
        self._gauge, self._meter, self._limits = gauge, meter, limits
        self._accounts = Accounts(meter, sender)
        self._numbers = count()
        self._calibration: Calibration | None = None

    @property
    def _alone(self) -> bool:
        """Whether readers go one at a time, so that counters tell which of several pairs served them."""
        topology = self._meter.topology if self._meter else None
        return topology is not None and topology.visible and len(topology.pairs) > 1

    @property
    def _budget(self) -> Budget:
        """What may be spent, as far as the context is known by now."""
        tokens = tokens_allowed(self._limits.budget, self._limits.suite_tokens, self._context)
        return replace(self._limits.budget, tokens=tokens)

    @property
    def _endpoint_client(self) -> Client:
        return self._sender.client

    async def run(self, first_number: int = 0) -> None:
        """Send everything. Raises Stopped, or a KvcanaryError when the endpoint cannot be used at all."""
        plan = await self.plan(first_number)
        if not plan.stages:
            raise Stopped(f"Nothing could be planned: {'; '.join(plan.skipped)}.")
        self._numbers = count(max(e.number for e in plan.exchanges) + 1)
        await self._send_stages(plan)

    async def plan(self, first_number: int = 0) -> Plan:
        """Calibrate, and say what the budget buys. Sends nothing but calibration and its control."""
        calibration = await self._prepare(first_number)
        budget = self._budget
        wanted = make_plan(
            self._probes,
            self._facts,
            self._context,
            calibration,
            self._limits.concurrency,
            first_number=next(self._numbers),
            bound=self._limits.bound,
        )
        plan = buy(wanted, budget, calibration)
        first = min((e.number for e in wanted.exchanges), default=0)
        self._sender.journal.append("plan", plan_note(plan, calibration, budget, first))
        return plan

    async def resume(self, record: RunRecord) -> None:
        """Go on where a run was cut off: what it has answered counts, the rest of its plan is sent.

        Victims are held again, with fresh text, unless the pool had been filled already.
        """
        numbers = [e.number for e in record.exchanges] + [s.number for s in record.simulations]
        if record.calibration is None or record.plan is None:
            await self.run(max(numbers, default=0) + UNRECORDED)
            return
        self._calibration = record.calibration
        self._sender.restore(record)
        made = make_plan(
            self._probes,
            self._facts,
            self._context,
            record.calibration,
            self._limits.concurrency,
            first_number=record.plan.first_number,
            bound=self._limits.bound,
        )
        plan = buy(made, self._budget, record.calibration)
        numbers += [e.number for e in made.exchanges]
        self._numbers = count(max(numbers) + UNRECORDED)
        sent = [e.number for e in record.exchanges]
        left = [s for s in (self._left(s, sent, record) for s in plan.stages) if s.exchanges]
        if left and not left[0].hold:
            left[0] = self._renumbered(left[0])
        await self._send_stages(replace(plan, stages=tuple(left)))

    def _renumbered(self, stage: Stage) -> Stage:
        """With fresh text for what may have been in flight: a prefix cache would answer for the old."""
        mine = stage.exchanges
        fresh = (replace(e, number=next(self._numbers)) for e in mine[: stage.in_flight])
        return replace(stage, exchanges=(*fresh, *mine[stage.in_flight :]))

    def _left(self, stage: Stage, sent: Sequence[int], record: RunRecord) -> Stage:
        """What a cut-off run still has to send of a stage."""
        if stage.hold:
            again = stage.exchanges if record.high_water is None else ()
            return replace(
                stage, exchanges=tuple(replace(e, number=next(self._numbers)) for e in again)
            )
        return replace(stage, exchanges=tuple(e for e in stage.exchanges if e.number not in sent))

    async def replay(self, exchanges: Sequence[Exchange]) -> None:
        """Send exchanges of an earlier run again, after a calibration with texts of its own."""
        await self._prepare(first_number=max(e.number for e in exchanges) + 1)
        await self._send_stages(
            replay_plan(exchanges, self._limits.concurrency, self._facts.decode_pool_tokens)
        )

    async def _prepare(self, first_number: int) -> Calibration:
        """Calibrate and show that a foreign label would be seen."""
        self._numbers = count(first_number)
        calibrator = Calibrator(self._sender, self._context, self._numbers, self._short_deadline)
        self._calibration = await calibrator.run()
        await self._decoy(Purpose.DECOY_BEFORE)
        if self._facts.context_tokens is None:
            await self._find_context(self._calibration)
        await simulate(self._sender, self._numbers, self._context, self._short_deadline)
        return self._calibration

    async def _find_context(self, calibration: Calibration) -> None:
        """Where nobody says how long prompts may be, find out, within a quarter of the budget."""
        self._sender.listener.phase("limits", 1, 0)
        async with self._streaming() as client:
            found = await find_context(
                self._sender,
                client,
                calibration,
                self._numbers,
                self._limits.deadline_seconds,
                self._budget.tokens,
            )
        changes = {"context_tokens": found.context_tokens, "context_source": found.source}
        self._facts = self._facts.model_copy(update=changes)
        self._sender.journal.append("facts", self._facts)

    async def _find_boundary(self) -> None:
        """Where no limit was known beforehand and something broke: between which lengths?"""
        found = bracket(self._sender.exchanges)
        if found is None or self._facts.limit_tokens is not None:
            return
        self._sender.listener.phase("boundary", HALVINGS, HALVINGS * found.lost_tokens)
        narrowed = await narrow(found, self._ask_at_if_affordable)
        self._sender.journal.append("boundary", narrowed)

    def _affords(self, tokens: int) -> bool:
        """Whether the budget still has room for a prompt that the plan did not name."""
        limit = self._budget.tokens
        calibrating = (Purpose.CALIBRATION, *DECOYS, Purpose.CONFIRMATION)
        spent = sum(e.length_tokens for e in self._sender.exchanges if e.purpose not in calibrating)
        return limit is None or spent + tokens <= limit

    async def _ask_at_if_affordable(self, tokens: int) -> Exchange | None:
        return await self._ask_at(tokens) if self._affords(tokens) else None

    async def _ask_at(self, tokens: int) -> Exchange | None:
        return await self._send(
            Planned(
                number=next(self._numbers),
                probe="control",
                group="boundary",
                purpose=Purpose.LADDER,
                tenant=READERS[0],
                tokens=tokens,
                asked=Position.END,
                max_tokens=SHORT_OUTPUT,
            )
        )

    @property
    def _context(self) -> int:
        return self._facts.context_tokens or PROVISIONAL_CONTEXT

    @property
    def _short_deadline(self) -> float:
        return min(SETUP_SECONDS, self._limits.deadline_seconds)

    async def _send_stages(self, plan: Plan) -> None:
        for stage in plan.stages:
            tokens = sum(e.tokens for e in stage.exchanges)
            self._sender.listener.phase(stage.group, len(stage.exchanges), tokens)
            async with self._accounts.window(stage.group):
                await (self._hold(stage) if stage.hold else self._read(stage))
            self._stop_on_leak()
        await self._confirm()
        await self._find_boundary()
        await self._decoy(Purpose.DECOY_AFTER)

    def _stop_on_leak(self) -> None:
        """Some suites end at the first leak: more requests would only read more of other people's pages."""
        if not self._limits.stop_on_leak:
            return
        found = foreign.findings(self._sender.exchanges, self._sender.scale())
        if any(finding.severity is Severity.LEAK for finding in found):
            raise Stopped("a leak was found, and this suite stops at the first one")

    # -- positive control --------------------------------------------------------------------------

    async def _decoy(self, purpose: Purpose) -> None:
        """The positive control: somebody else's label, asked for by name, has to be seen and recognised.

        A model that slips is asked again: what has to be shown is that the channel can carry it.
        """
        for _ in range(RETRIES):
            if await self._decoy_seen(purpose):
                break

    async def _decoy_seen(self, purpose: Purpose) -> bool:
        number, identity = next(self._numbers), next(self._numbers)
        shape = Shape(0, 1, 0)
        if self._calibration and self._calibration.predict(shape) + SHORT_OUTPUT > self._context:
            shape = Shape(0, 0, 0)
        prompt = self._sender.prompt(number, BYSTANDER, shape, Position.START, (identity, DECOY))
        planned = self._calibration.predict(shape) if self._calibration else None
        letter = Letter(prompt, "control", "decoys", purpose, planned, SHORT_OUTPUT)
        return bool((await self._sender.send(letter, self._short_deadline)).decoy_seen)

    # -- stages ------------------------------------------------------------------------------------

    async def _read(self, stage: Stage) -> None:
        """Readers of one stratum; one after the other where it can be seen which workers each one meets."""
        if self._meter and self._alone:
            await self._read_and_meet(stage, self._meter)
            return
        everybody = asyncio.Semaphore(self._limits.concurrency)
        readers = asyncio.Semaphore(stage.in_flight)

        async def one(planned: Planned) -> None:
            # a bystander goes beside the readers: in their place, its slot would later hold one reader
            # more than the pool has room for
            beside = planned.purpose is Purpose.BYSTANDER
            async with nullcontext() if beside else readers, everybody:
                await self._send(planned)

        async with asyncio.TaskGroup() as group:
            for planned in stage.exchanges:
                group.create_task(one(planned))

    async def _read_and_meet(self, stage: Stage, meter: Meter) -> None:
        """Send until every pair of workers has been met in this stratum, or the router will not have it."""
        for planned in stage.exchanges:
            await self._send(planned)
        readers = [p for p in stage.exchanges if p.purpose is Purpose.READER]
        unmet = set(map(str, meter.topology.pairs))
        for extra in range(EXTRA_PER_PAIR * len(meter.topology.pairs) if readers else 0):
            if not self._affords(readers[0].tokens):
                break
            mine = (e for e in self._sender.exchanges if e.group == stage.group)
            met = {str(e.met) for e in mine if e.met and e.kept}
            if not unmet - met:
                break
            again = readers[extra % len(readers)]
            rank = _rank_of(sorted(unmet - met))
            await self._send(replace(again, number=next(self._numbers), rank=rank))

    async def _hold(self, stage: Stage) -> None:
        """Send all, wait until every one is being decoded (or has ended), read the gauge, let go."""
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
                    self._send(planned, client, release, lambda planned=planned: begin(planned))  # type: ignore[misc]
                )
                task.add_done_callback(lambda _: changed.set())
                tasks[planned.number] = task
            while any(not task.done() and n not in started for n, task in tasks.items()):
                changed.clear()
                await changed.wait()
            held = [p for p in stage.exchanges if not tasks[p.number].done()]
            used_tokens = await self._gauge() if self._gauge else None
            decoders: tuple[str, ...] = ()
            if self._meter and before:
                decoders = self._meter.decoders(before, await self._meter.read())
            note = high_water(sum(p.tokens for p in held), idle_tokens, used_tokens, decoders)
            self._sender.journal.append("high_water", note)
            release.set()

    async def _confirm(self) -> None:
        """Losses are sent again with fresh text until they are explained or condemned: all are recorded."""
        while lost := ownership.again(self._sender.exchanges) or self._unshown():
            tokens = sum(e.length_tokens for e in lost)
            self._sender.listener.phase("confirmation", len(lost), tokens)
            async with self._accounts.window("confirmation"):
                for exchange in lost:
                    await self._send(self._fresh(exchange))

    def _unshown(self) -> tuple[Exchange, ...]:
        """A part that no answer of a stratum showed is asked for once more, where the last page was kept: a
        model that slipped twice shows it then, one that cannot find it at this length does not."""
        return tuple(
            next(e for e in group.members if e.asked is positions[0] and e.read)
            for group, positions in unshown(self._sender.exchanges)
            if group.confirmations < SHOWN_AGAIN
            and all(e.kept for e in group.members if e.asked is Position.END and e.read)
        )

    def _fresh(self, exchange: Exchange) -> Planned:
        return Planned(
            number=next(self._numbers),
            probe=exchange.probe,
            group=exchange.group,
            purpose=Purpose.CONFIRMATION,
            tenant=exchange.tenant,
            tokens=exchange.planned_tokens or exchange.length_tokens,
            asked=exchange.asked,
            max_tokens=exchange.max_tokens,
        )

    async def _send(
        self,
        planned: Planned,
        client: Client | None = None,
        release: asyncio.Event | None = None,
        on_first_token: Callable[[], None] | None = None,
    ) -> Exchange | None:
        """Shape the prompt with what is known by now, send it, and learn from what the server counted."""
        assert self._calibration is not None  # noqa: S101 - nothing is planned before it
        try:
            shape = planned.shape or self._calibration.shape(planned.tokens)
        except TooShort:
            return None
        prompt = self._sender.prompt(planned.number, planned.tenant, shape, planned.asked)
        letter = Letter(
            prompt,
            planned.probe,
            planned.group,
            planned.purpose,
            self._calibration.predict(shape),
            planned.max_tokens,
            planned.rank,
        )
        exchange = await self._sender.send(
            letter,
            self._limits.deadline_seconds,
            client=client,
            on_first_token=on_first_token,
            release=release,
            meter=self._meter if self._alone and planned.purpose in ALONE else None,
        )
        if exchange.answered and exchange.prompt_tokens:
            self._calibration = self._calibration.refit(shape, exchange.prompt_tokens)
        return exchange

    def _streaming(self) -> Client:
        """Holding needs a stream: without one nobody can say when decoding has begun."""
        endpoint = replace(self._endpoint_client.endpoint, stream=True)
        return Client(endpoint, concurrency=MAX_VICTIMS)


def _rank_of(pairs: Sequence[str]) -> int | None:
    """The DP rank of the first unmet pair that has one (``P1-D1.2``): routers let requests be steered there."""
    ranks = (pair.rpartition(".")[2] for pair in pairs if "." in pair)
    return next((int(rank) for rank in ranks if rank.isdigit()), None)

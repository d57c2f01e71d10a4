"""Runs a suite's probes against a deployment: calibrate, control, plan, send, confirm.

Everything that is decided here is decided from recorded values; everything that is sent goes through
``Sender``. Nothing a server does raises: what keeps a run from being worth anything ends it with
``Stopped``, and the verdict is then inconclusive.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from kvcanary.canary.prompt import Position, Shape
from kvcanary.deployment.facts import Facts
from kvcanary.detect import ownership
from kvcanary.probing.accounts import Accounts
from kvcanary.probing.backoff import Backoff
from kvcanary.probing.boundary import HALVINGS, bracket, narrow
from kvcanary.probing.buying import COMPANIONS, Budget, buy, plan_note, tokens_allowed
from kvcanary.probing.calibrate import RETRIES, SHORT_OUTPUT, Calibrator
from kvcanary.probing.client import Client
from kvcanary.probing.courier import Courier, Limits
from kvcanary.probing.deadlines import deadline_seconds
from kvcanary.probing.grammar import Probe
from kvcanary.probing.limits import PROVISIONAL_CONTEXT, find_context
from kvcanary.probing.needs import Situation
from kvcanary.probing.overhead import after, decoy_tokens, slip_rate, spent
from kvcanary.probing.plan import make_plan, replay_plan
from kvcanary.probing.planned import Plan, Planned, Stage
from kvcanary.probing.roles import BYSTANDER, DECOY, READERS
from kvcanary.probing.sender import Letter, Sender
from kvcanary.probing.simulate import simulate
from kvcanary.probing.sizing import Calibration
from kvcanary.probing.stages import PoolGauge, Stages, batches
from kvcanary.probing.stopped import Stopped
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.record.simulation import Simulation
from kvcanary.telemetry.meter import Meter
from kvcanary.verdict.judge import unshown

SETUP_SECONDS = 120.0
"""Longest wait for a short request before anything is known: the first inference may compile for 40 s."""
SHOWN_AGAIN = 2
"""Confirmations of a stratum after which a part that none of its answers showed is given up."""
UNRECORDED = 64
"""Numbers that a run which was killed may have used for requests it did not come to record."""


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
        backoff: Backoff | None = None,
    ) -> None:
        self._sender, self._probes, self._facts = sender, probes, facts
        self._meter, self._limits, self._backoff = meter, limits, backoff
        self._numbers = count()
        self._simulations: tuple[Simulation, ...] = ()
        self._courier = Courier(sender, limits, backoff)
        self._accounts = Accounts(meter, sender)
        self._stages = Stages(
            self._courier,
            lambda: next(self._numbers),
            gauge,
            meter,
            self._accounts,
            facts.decode_pool_tokens,
        )

    @property
    def _calibration(self) -> Calibration | None:
        return self._courier.calibration

    @property
    def _budget(self) -> Budget:
        """What may be spent, as far as the context is known by now."""
        tokens = tokens_allowed(self._limits.budget, self._limits.suite_tokens, self._context)
        return replace(self._limits.budget, tokens=tokens)

    async def run(self, first_number: int = 0) -> None:
        """Send everything. Raises Stopped, or a KvcanaryError when the endpoint cannot be used at all."""
        plan = await self.plan(first_number)
        if not plan.exchanges:
            if not plan.skipped:
                return  # its probes send nothing: the deployment's own figures are judged
            first, *more = plan.skipped
            others = f" (and {len(more)} more reasons: see what was not tested)" if more else ""
            raise Stopped(f"Nothing could be planned: {first}{others}.")
        self._numbers = count(max((e.number for e in plan.exchanges), default=0) + 1)
        await self._send_stages(plan)

    async def plan(self, first_number: int = 0) -> Plan:
        """Calibrate, and say what the budget buys. Sends nothing but calibration and its control."""
        calibration = await self._prepare(first_number)
        wanted = self._wanted(calibration, next(self._numbers))
        if self._backoff and (untold := await self._backoff.untold()):
            wanted = replace(wanted, skipped=(*wanted.skipped, untold))
        before = spent(self._sender.exchanges, self._simulations)
        besides = before.prompt_tokens + RETRIES * decoy_tokens(calibration)
        plan = buy(wanted, self._budget, calibration, besides)
        first = min((e.number for e in wanted.exchanges), default=0)
        overhead = (
            before,
            *after(
                plan,
                calibration,
                len(self._meter.topology.pairs) if self._meter and self._stages.alone else 0,
                limit_known=self._facts.limit_tokens is not None,
                slip_rate=slip_rate(self._sender.exchanges),
            ),
        )
        note = plan_note(plan, calibration, self._budget, overhead, first)
        self._keep_to(note.most_prompt_tokens, calibration)
        self._sender.journal.append("plan", note)
        return plan

    def _wanted(self, calibration: Calibration, first_number: int) -> Plan:
        topology = self._meter.topology if self._meter else None
        situation = Situation(
            self._facts,
            streaming=self._sender.client.endpoint.stream,
            pairs=len(topology.pairs) if topology else None,
            counted=topology is not None and topology.visible,
            keys=self._sender.identities.separation().keys,
            adapters=len(self._sender.adapters),
        )
        return make_plan(
            self._probes,
            self._facts,
            self._context,
            calibration,
            self._limits.concurrency,
            first_number,
            self._limits.bound,
            situation,
            self._sender.journal.record.info.turn,
        )

    def _keep_to(self, most_tokens: int | None, calibration: Calibration) -> None:
        self._courier.most_tokens = most_tokens
        self._courier.besides_tokens = sum(s.prompt_tokens for s in self._simulations)
        self._courier.kept_tokens = RETRIES * decoy_tokens(calibration)

    async def resume(self, record: RunRecord) -> None:
        """Go on where a run was cut off: what it has answered counts, the rest of its plan is sent.

        Victims are held again, with fresh text, unless the pool had been filled already.
        """
        numbers = [e.number for e in record.exchanges] + [s.number for s in record.simulations]
        if record.calibration is None or record.plan is None:
            await self.run(max(numbers, default=0) + UNRECORDED)
            return
        self._courier.calibration = record.calibration
        self._simulations = record.simulations
        self._sender.restore(record)
        made = self._wanted(record.calibration, record.plan.first_number)
        before = record.plan.overhead[0].prompt_tokens if record.plan.overhead else 0
        besides = before + RETRIES * decoy_tokens(record.calibration)
        plan = buy(made, self._budget, record.calibration, besides)
        self._keep_to(record.plan.most_prompt_tokens, record.calibration)
        numbers += [e.number for e in made.exchanges]
        self._numbers = count(max(numbers) + UNRECORDED)
        sent = [e.number for e in record.exchanges]
        left = [self._left(stage, sent, record) for stage in plan.stages]
        left = _without_idle_waits(left)
        in_flight = batches(left)[0] if left and not left[0].hold else ()
        fresh = [self._renumbered(stage) for stage in in_flight]
        await self._send_stages(replace(plan, stages=(*fresh, *left[len(fresh) :])))

    def _renumbered(self, stage: Stage) -> Stage:
        """With fresh text for what may have been in flight: a prefix cache would answer for the old."""
        mine = stage.exchanges
        begun = stage.in_flight * (2 if mine[0].purpose is Purpose.DROPPED else 1)
        fresh = (replace(e, number=next(self._numbers)) for e in mine[:begun])
        return replace(stage, exchanges=(*fresh, *mine[begun:]))

    def _left(self, stage: Stage, sent: Sequence[int], record: RunRecord) -> Stage:
        """What a cut-off run still has to send of a stage: a reader behind a dropped prompt with another."""
        if stage.hold:
            again = stage.exchanges if record.high_water is None else ()
            return replace(
                stage, exchanges=tuple(replace(e, number=next(self._numbers)) for e in again)
            )
        return replace(
            stage,
            exchanges=tuple(
                e for e in stage.exchanges if e.number + (e.purpose is Purpose.DROPPED) not in sent
            ),
        )

    async def replay(self, exchanges: Sequence[Exchange]) -> None:
        """Send exchanges of an earlier run again, after a calibration with texts of its own."""
        await self._prepare(first_number=max(e.number for e in exchanges) + 1)
        await self._send_stages(
            replay_plan(exchanges, self._limits.concurrency, self._facts.decode_pool_tokens)
        )

    async def _prepare(self, first_number: int) -> Calibration:
        """Calibrate and show that a foreign label would be seen."""
        self._numbers = count(first_number)
        setup = min(SETUP_SECONDS, self._limits.deadline_seconds)
        a_minute = self._limits.budget.tokens_per_minute
        calibrator = Calibrator(self._sender, self._context, self._numbers, setup, a_minute)
        calibration = self._courier.calibration = await calibrator.run()
        await self._decoy(Purpose.DECOY_BEFORE)
        if self._facts.context_tokens is None:
            await self._find_context(calibration)
        self._simulations = await simulate(
            self._sender, self._numbers, self._context, self._short_deadline
        )
        return calibration

    async def _find_context(self, calibration: Calibration) -> None:
        """Where nobody says how long prompts may be, find out, within a quarter of the budget."""
        self._sender.listener.phase("limits", 1, 0)
        async with Client(replace(self._sender.client.endpoint, stream=True)) as client:
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
        narrowed = await narrow(found, self._ask_at)
        self._sender.journal.append("boundary", narrowed)

    async def _ask_at(self, tokens: int) -> Exchange | None:
        if not self._courier.affords(tokens):
            return None
        return await self._courier.send(
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
        """For a short request, once calibration has told how long one takes."""
        most = min(SETUP_SECONDS, self._limits.deadline_seconds)
        if self._calibration is None:
            return most
        return deadline_seconds(
            self._calibration, (self._calibration.base_tokens,), SHORT_OUTPUT, most
        )

    async def _send_stages(self, plan: Plan) -> None:
        self._courier.promise(plan)
        for stages in self._up_to_proof(plan):
            await self._stages.send(stages)
            if self._limits.stop_when_proven:
                await self._confirm()
        await self._confirm()
        await self._find_boundary()
        await self._decoy(Purpose.DECOY_AFTER)

    def _up_to_proof(self, plan: Plan) -> Sequence[Sequence[Stage]]:
        """All at once; or batch by batch, where a loss is to be confirmed before more is sent."""
        return batches(plan.stages) if self._limits.stop_when_proven else (plan.stages,)

    # -- positive control --------------------------------------------------------------------------

    async def _decoy(self, purpose: Purpose) -> None:
        """The positive control: somebody else's label, asked for by name, has to be seen and recognised.

        A model that slips is asked again: what has to be shown is that the channel can carry it.
        """
        for _ in range(RETRIES):
            exchange = await self._send_decoy(purpose)
            if exchange.decoy_seen or exchange.outcome == "hung":
                break

    async def _send_decoy(self, purpose: Purpose) -> Exchange:
        number, identity = next(self._numbers), next(self._numbers)
        shape = Shape(0, 1, 0)
        if self._calibration and self._calibration.predict(shape) + SHORT_OUTPUT > self._context:
            shape = Shape(0, 0, 0)
        prompt = self._sender.prompt(number, BYSTANDER, shape, Position.START, (identity, DECOY))
        planned = self._calibration.predict(shape) if self._calibration else None
        letter = Letter(prompt, "control", "decoys", purpose, planned, SHORT_OUTPUT)
        return await self._sender.send(letter, self._short_deadline)

    # -- confirmations -----------------------------------------------------------------------------

    async def _confirm(self) -> None:
        """Losses are sent again with fresh text until they are explained or condemned, as far as the budget
        goes: all are recorded."""
        while lost := ownership.again(self._sender.exchanges) or self._unshown():
            tokens = sum(e.length_tokens for e in lost)
            self._sender.listener.phase("confirmation", len(lost), tokens)
            async with self._accounts.window("confirmation"):
                for exchange in lost:
                    again = self._fresh(exchange)
                    if not self._courier.affords(sum(p.tokens for p in again)):
                        return
                    for planned in again:
                        await self._stages.ask(planned)
            self._courier.raise_if_enough()

    def _unshown(self) -> tuple[Exchange, ...]:
        """A part that no answer of a stratum showed is asked for once more, where the last page was kept: a
        model that slipped twice shows it then, one that cannot find it at this length does not."""
        return tuple(
            next(e for e in group.members if e.asked is positions[0] and e.read)
            for group, positions in unshown(self._sender.exchanges)
            if group.confirmations < SHOWN_AGAIN
            and all(e.kept for e in group.members if e.asked is Position.END and e.read)
        )

    def _fresh(self, exchange: Exchange) -> tuple[Planned, ...]:
        """The same with fresh text; behind another that is dropped or spoilt, where the first one was."""
        before = [e for e in self._sender.exchanges if e.number == exchange.number - 1]
        companion = [e for e in before if e.purpose in COMPANIONS and e.probe == exchange.probe]
        return tuple(
            Planned(
                number=next(self._numbers),
                probe=e.probe,
                group=e.group,
                purpose=Purpose.CONFIRMATION if e is exchange else e.purpose,
                tenant=e.tenant,
                tokens=e.planned_tokens or e.length_tokens,
                asked=e.asked,
                max_tokens=e.max_tokens,
                drop_at=e.drop_at,
                expected=e.expected,
                manner=e.manner,
            )
            for e in (*companion, exchange)
        )


def _without_idle_waits(stages: Sequence[Stage]) -> list[Stage]:
    """Stages that have something to send; a wait only where it stands between two of them."""
    kept: list[Stage] = []
    for stage in stages:
        if stage.exchanges or (stage.wait and kept):
            kept.append(stage)
    while kept and kept[-1].wait:
        kept.pop()
    return kept

"""Runs a probe against a deployment: calibrate, control, plan, send, confirm.

Everything that is decided here is decided from recorded values; everything that is sent goes through
``Sender``. Nothing a server does raises: what keeps a run from being worth anything ends it with
``Stopped``, and the verdict is then inconclusive.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from kvcanary.canary.prompt import Position, Shape
from kvcanary.deployment.facts import Facts
from kvcanary.detect import ownership
from kvcanary.probing.client import Client
from kvcanary.probing.grammar import Probe
from kvcanary.probing.outcome import raise_for_setup
from kvcanary.probing.plan import (
    BYSTANDER,
    CALIBRATOR,
    DECOY,
    MAX_VICTIMS,
    Plan,
    Planned,
    Stage,
    make_plan,
    replay_plan,
)
from kvcanary.probing.sender import Letter, Sender
from kvcanary.probing.sizing import Calibration, TooShort
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.run import HighWater, PlanNote

SETUP_SECONDS = 120.0
"""Longest wait for a short request: the first inference may compile for 40 s."""
SHORT_OUTPUT = 96
RETRIES = 3
"""Times that a short question is asked before the model is taken not to answer it."""

PoolGauge = Callable[[], Awaitable[int | None]]
"""Tokens in use in the decode pool now, by the deployment's own figures; None where it does not tell."""


class Stopped(Exception):  # noqa: N818 - says what happened
    """The run cannot measure anything (more). The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use."""

    concurrency: int
    deadline_seconds: float


class Runner:
    """One run of one probe."""

    def __init__(
        self,
        sender: Sender,
        probe: Probe,
        facts: Facts,
        gauge: PoolGauge | None,
        limits: Limits,
    ) -> None:
        self._sender, self._probe, self._facts = sender, probe, facts
        self._gauge, self._limits = gauge, limits
        self._numbers = count()
        self._calibration: Calibration | None = None

    @property
    def _endpoint_client(self) -> Client:
        return self._sender.client

    async def run(self) -> None:
        """Send everything. Raises Stopped, or a KvcanaryError when the endpoint cannot be used at all."""
        context = self._facts.context_tokens
        if context is None:
            raise Stopped(
                "The context limit is unknown: the server does not tell it. "
                "Say what the deployment promises with --context N."
            )
        calibration = await self._calibrate(context)
        await self._decoy(Purpose.DECOY_BEFORE)
        plan = make_plan(
            self._probe,
            self._facts,
            context,
            calibration,
            self._limits.concurrency,
            first_number=next(self._numbers),
        )
        note = PlanNote(
            requests=len(plan.exchanges), prompt_tokens=plan.tokens, skipped=plan.skipped
        )
        self._sender.journal.append("plan", note)
        if not plan.stages:
            raise Stopped(f"Nothing could be planned: {'; '.join(plan.skipped)}.")
        await self._send_stages(plan)

    async def replay(self, exchanges: Sequence[Exchange]) -> None:
        """Send exchanges of an earlier run again, after the same warm-up and with the same control."""
        context = self._facts.context_tokens
        if context is None:
            raise Stopped("The context limit is unknown. Say what was promised with --context N.")
        await self._calibrate(context)
        await self._decoy(Purpose.DECOY_BEFORE)
        plan = replay_plan(self._probe.id, exchanges, self._limits.concurrency)
        await self._send_stages(plan)

    async def _send_stages(self, plan: Plan) -> None:
        self._numbers = count(max(e.number for e in plan.exchanges) + 1)
        for stage in plan.stages:
            tokens = sum(e.tokens for e in stage.exchanges)
            self._sender.listener.phase(stage.group, len(stage.exchanges), tokens)
            await (self._hold(stage) if stage.hold else self._read(stage))
        await self._confirm()
        await self._decoy(Purpose.DECOY_AFTER)

    # -- calibration and control -------------------------------------------------------------------

    async def _calibrate(self, context: int) -> Calibration:
        """Short prompts of no, one and more chapters: what do frame and chapter cost in tokens?"""
        self._sender.listener.phase("calibration", 3, 0)
        frame = await self._short(Shape(0, 0, 0), context)
        base = frame.prompt_tokens
        if base is None:
            raise Stopped(
                "The server reports no usage (prompt_tokens), so prompt lengths cannot be known and "
                "nothing can be claimed about them. Turn usage on in the server or gateway."
            )
        words = self._sender.prompt(0, CALIBRATOR, Shape(0, 1, 0), Position.END).words
        room = context - SHORT_OUTPUT
        one = int(1.5 * words)
        if one > room:
            calibration = Calibration(
                base_tokens=base, chapter_tokens=float(one), fitted_tokens=base
            )
        else:
            chapters = next((n for n in (16, 8, 4, 2) if base + n * one < room / 4), 1)
            single = await self._short(Shape(0, 1, 0), context)
            several = await self._short(Shape(chapters // 2, chapters - chapters // 2, 30), context)
            calibration = _fit(base, single, several, chapters)
        for _ in range(RETRIES):
            for position in ownership.unsound(self._sender.exchanges):
                await self._short(Shape(0, 0, 0), context, position)
        self._calibration = calibration
        self._sender.journal.append("calibration", calibration)
        return calibration

    async def _short(
        self, shape: Shape, context: int, position: Position | None = None
    ) -> Exchange:
        number = next(self._numbers)
        position = position or list(Position)[number % 3]
        prompt = self._sender.prompt(number, CALIBRATOR, shape, position)
        if prompt.words + SHORT_OUTPUT > context:
            raise Stopped(
                f"The context of {context:,} tokens is too small: the shortest canary prompt has "
                f"{prompt.words} words and needs {SHORT_OUTPUT} tokens for the answer."
            )
        letter = Letter(prompt, "calibration", Purpose.CALIBRATION, None, SHORT_OUTPUT)
        exchange = await self._sender.send(
            letter, min(SETUP_SECONDS, self._limits.deadline_seconds)
        )
        if number == 0 and self._sender.last_reply is not None:
            raise_for_setup(self._sender.last_reply, self._endpoint_client.endpoint)
        if not exchange.answered:
            raise Stopped(_not_answered(exchange))
        return exchange

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
        if self._calibration and self._calibration.predict(shape) + SHORT_OUTPUT > (
            self._facts.context_tokens or 0
        ):
            shape = Shape(0, 0, 0)
        prompt = self._sender.prompt(number, BYSTANDER, shape, Position.START, (identity, DECOY))
        planned = self._calibration.predict(shape) if self._calibration else None
        letter = Letter(prompt, "decoys", purpose, planned, SHORT_OUTPUT)
        deadline = min(SETUP_SECONDS, self._limits.deadline_seconds)
        return bool((await self._sender.send(letter, deadline)).decoy_seen)

    # -- stages ------------------------------------------------------------------------------------

    async def _read(self, stage: Stage) -> None:
        slots = asyncio.Semaphore(stage.in_flight)

        async def one(planned: Planned) -> None:
            async with slots:
                await self._send(planned)

        async with asyncio.TaskGroup() as group:
            for planned in stage.exchanges:
                group.create_task(one(planned))

    async def _hold(self, stage: Stage) -> None:
        """Send all, wait until every one is being decoded (or has ended), read the gauge, let go."""
        release = asyncio.Event()
        started: set[int] = set()
        changed = asyncio.Event()

        def begin(planned: Planned) -> None:
            started.add(planned.number)
            changed.set()

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
            await self._note_high_water(sum(p.tokens for p in held))
            release.set()

    async def _note_high_water(self, in_flight_tokens: int) -> None:
        measured = await self._gauge() if self._gauge else None
        if measured is not None:
            note = HighWater(tokens=measured, how="measured")
        else:
            note = HighWater(tokens=in_flight_tokens, how="estimated")
        self._sender.journal.append("high_water", note)

    async def _confirm(self) -> None:
        """Losses are sent again with fresh text until they are explained or condemned: all are recorded."""
        while lost := ownership.again(self._sender.exchanges):
            tokens = sum(e.length_tokens for e in lost)
            self._sender.listener.phase("confirmation", len(lost), tokens)
            for exchange in lost:
                await self._send(self._fresh(exchange))

    def _fresh(self, exchange: Exchange) -> Planned:
        return Planned(
            number=next(self._numbers),
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
            planned.group,
            planned.purpose,
            self._calibration.predict(shape),
            planned.max_tokens,
        )
        exchange = await self._sender.send(
            letter,
            self._limits.deadline_seconds,
            client=client,
            on_first_token=on_first_token,
            release=release,
        )
        if exchange.answered and exchange.prompt_tokens:
            self._calibration = self._calibration.refit(shape, exchange.prompt_tokens)
        return exchange

    def _streaming(self) -> Client:
        """Holding needs a stream: without one nobody can say when decoding has begun."""
        endpoint = replace(self._endpoint_client.endpoint, stream=True)
        return Client(endpoint, concurrency=MAX_VICTIMS)


def _fit(base: int, single: Exchange, several: Exchange, chapters: int) -> Calibration:
    one, many = single.prompt_tokens, several.prompt_tokens
    if one is None or many is None:
        raise Stopped("The server reports usage for some requests only; lengths cannot be known.")
    first, chapter = one - base, (many - 30 - base) / chapters
    if chapter <= 0 or abs(first - chapter) > max(32, 0.1 * chapter):
        raise Stopped(
            f"The server's prompt_tokens do not grow with the prompt: {base:,} for the frame, {one:,} with one "
            f"chapter, {many:,} with {chapters}. Something shortens prompts or counts them wrongly; "
            "no length can be claimed."
        )
    return Calibration(base_tokens=base, chapter_tokens=chapter, fitted_tokens=many)


def _not_answered(exchange: Exchange) -> str:
    status = f", HTTP {exchange.status}" if exchange.status else ""
    hint = {
        "rate_limited": "Wait, or use a key with a higher limit.",
        "overloaded": "Try again when it is ready.",
        "deadline": "Check that the model is loaded, or allow more with --deadline.",
        "length_limit": "The promised context (--context) is longer than what the server accepts.",
    }.get(exchange.reason, "See the server's log for the request named " + exchange.name + ".")
    return (
        f"A short request was not answered ({exchange.outcome.replace('_', ' ')}: "
        f"{exchange.reason.replace('_', ' ')}{status}), so nothing could be measured. {hint}"
    )

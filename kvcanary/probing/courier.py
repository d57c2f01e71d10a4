"""Takes planned requests to the sender: shape, price, room, deadline, and whether it is time to end."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcanary.canary.prompt import Shape
from kvcanary.detect import foreign, ownership
from kvcanary.probing.backoff import Backoff
from kvcanary.probing.buying import NO_LIMIT, Budget, at_most
from kvcanary.probing.client import Client
from kvcanary.probing.deadlines import deadline_seconds, due_seconds
from kvcanary.probing.planned import Plan, Planned
from kvcanary.probing.sender import Letter, Sender
from kvcanary.probing.sizing import Calibration, TooShort
from kvcanary.probing.stopped import Stopped
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.telemetry.meter import Meter
from kvcanary.verdict.findings import Severity

PROVEN = (
    "a leak or corruption was proven, and this suite ends there: more requests would only read more "
    "of other people's pages"
)
HUNG = 6
"""Requests in a row that were never answered, after which nothing more is sent."""
SILENT = "{} requests in a row were never answered: nothing more was sent: each would only wait"
_SHORT = (Purpose.BYSTANDER, Purpose.FILL)
"""Never waits for room by itself: a victim's stage has waited before any of them was sent."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use."""

    concurrency: int
    deadline_seconds: float
    """Longest wait for one request, whatever its length."""
    budget: Budget = NO_LIMIT
    suite_tokens: str | None = None
    """The suite's own limit of tokens, as a length expression: holds where the budget has none."""
    stop_when_proven: bool = False
    bound: float | None = None
    """Rate of bad answers that each stratum has to be shown to stay below."""


@dataclass(frozen=True, slots=True)
class _Text:
    """For which request it was made first, its shape, and the tokens that it should have."""

    number: int
    shape: Shape
    tokens: int


class Courier:
    """Sends what was planned, one request at a time or many at once."""

    def __init__(self, sender: Sender, limits: Limits, backoff: Backoff | None) -> None:
        self.sender, self.limits, self._backoff = sender, limits, backoff
        self.calibration: Calibration | None = None
        self.most_tokens: int | None = None
        """No more prompt tokens than this are sent, what came before the plan included; None: no limit."""
        self.besides_tokens = 0
        """Sent and not among the exchanges: simulated leaks."""
        self.kept_tokens = 0
        """Set aside for the decoys at the end."""
        self._promised: dict[int, int] = {}
        """At most so many tokens for each request of the plan that is not over."""
        self.queued: tuple[int, ...] = ()
        """Lengths of the prompts that may be computed at the same time as the next ones."""
        self.queued_output = 0
        """Tokens of answers that may have to end before the next ones have room."""
        self.enough = asyncio.Event()
        """Set when the run has to end: what is in flight is let go of, and nothing more is begun."""
        self._why = ""

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """All that is over."""
        return self.sender.exchanges

    def affords(self, tokens: int) -> bool:
        """Whether there is room for prompts that the plan does not name."""
        if self.most_tokens is None:
            return True
        spent = self.besides_tokens + sum(e.length_tokens for e in self.exchanges)
        margin = self.calibration.uncertainty(tokens) if self.calibration else 0
        kept = self.kept_tokens + sum(self._promised.values())
        return spent + tokens + margin + kept <= self.most_tokens

    def promise(self, plan: Plan) -> None:
        """Set aside what the plan will send."""
        calibration = self.calibration
        if calibration:
            self._promised = {e.number: at_most(e.tokens, calibration) for e in plan.exchanges}

    async def room(self) -> None:
        """Wait while others need the pool; the run ends when that takes too long."""
        try:
            if self._backoff:
                await self._backoff.wait()
        except Stopped as stopped:
            self._end(str(stopped))

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self.enough.set()

    def raise_if_enough(self) -> None:
        """Raises Stopped where the run has to end: a proof, or no room."""
        if self.enough.is_set():
            raise Stopped(self._why)

    async def send(
        self,
        planned: Planned,
        *,
        client: Client | None = None,
        on_first_token: Callable[[], None] | None = None,
        release: asyncio.Event | None = None,
        meter: Meter | None = None,
    ) -> Exchange | None:
        """Shape the prompt with what is known by now, send it, and learn from what the server counted.

        None where it was not sent: no room for a canary prompt, or the run ends. ``release``: where it is not
        given, the run's own end lets go of it.
        """
        try:
            return await self._sent(planned, client, on_first_token, release, meter)
        finally:
            self._promised.pop(planned.number, None)

    async def _sent(
        self,
        planned: Planned,
        client: Client | None,
        on_first_token: Callable[[], None] | None,
        release: asyncio.Event | None,
        meter: Meter | None,
    ) -> Exchange | None:
        assert self.calibration is not None  # noqa: S101 - nothing is planned before it
        text = self._text(planned)
        if text is None:
            return None
        if planned.purpose not in _SHORT:
            await self.room()
        if self.enough.is_set():
            return None
        work = (planned.tokens, *self.queued), planned.max_tokens + self.queued_output
        letter = Letter(
            self.sender.prompt(
                text.number,
                planned.tenant,
                text.shape,
                planned.asked,
                begun=planned.manner.begun,
                recite=planned.manner.recite,
            ),
            planned.probe,
            planned.group,
            planned.purpose,
            text.tokens,
            planned.max_tokens,
            planned.rank,
            planned.drop_at,
            planned.expected,
            planned.number,
            planned.manner,
            due_seconds(self.calibration, *work),
        )
        exchange = await self.sender.send(
            letter,
            deadline_seconds(self.calibration, *work, self.limits.deadline_seconds),
            client=client,
            on_first_token=on_first_token,
            release=release or self.enough,
            meter=meter,
        )
        if exchange.answered and exchange.prompt_tokens:
            self.calibration = self.calibration.refit(text.shape, exchange.prompt_tokens)
        last = self.exchanges[-HUNG:]
        if len(last) == HUNG and all(e.outcome == "hung" for e in last):
            self._end(SILENT.format(HUNG))
        if self.limits.stop_when_proven and self._proven():
            self._end(PROVEN)
        return exchange

    def _text(self, planned: Planned) -> _Text | None:
        """What to send; None where there is no room for a prompt, or no earlier one to send again."""
        assert self.calibration is not None  # noqa: S101 - nothing is planned before it
        if planned.shape is not None:
            number = planned.number if planned.again is None else planned.again
            return _Text(number, planned.shape, self.calibration.predict(planned.shape))
        if planned.again is not None:
            return self._earlier(planned, planned.again)
        try:
            shape = self.calibration.shape(planned.tokens)
        except TooShort:
            return None
        return _Text(planned.number, shape, self.calibration.predict(shape))

    def _earlier(self, planned: Planned, number: int) -> _Text | None:
        """An earlier text, with as much more or less padding as makes it the length that is wanted: a word of
        padding is a token."""
        first = next((e for e in self.exchanges if e.number == number and e.answered), None)
        if first is None or first.prompt_tokens is None:
            return None
        more = planned.pad.target(first.prompt_tokens) - first.prompt_tokens
        if first.pad_words + more < 0:
            return None
        shape = Shape(first.chapters_before, first.chapters_after, first.pad_words + more)
        return _Text(first.text, shape, first.prompt_tokens + more)

    def _proven(self) -> bool:
        """A leak, or corruption that was confirmed with fresh text."""
        found = foreign.findings(self.exchanges, self.sender.scale())
        return any(f.severity is Severity.LEAK for f in found) or any(
            group.condemned for group in ownership.measure(self.exchanges)
        )

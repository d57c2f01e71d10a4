"""From a probe and the facts to the exchanges that will be sent. Pure: no I/O, no clock, no chance."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle, groupby, islice

from kvcanary.canary.prompt import MAX_CHAPTERS, Position, Shape
from kvcanary.deployment.facts import Facts
from kvcanary.probing.grammar import Abort, Fill, Probe, Read, Step, Together, Wait
from kvcanary.probing.lengths import evaluate
from kvcanary.probing.needs import Situation, unmet
from kvcanary.probing.roles import BYSTANDER, FIRST_VICTIM, MAX_VICTIMS, READERS
from kvcanary.probing.simulate import SIMULATIONS
from kvcanary.probing.sizing import Calibration
from kvcanary.record.exchange import Exchange, Expectation, Purpose
from kvcanary.record.run import UnmetNeed
from kvcanary.verdict.statistics import answers_for_leaks

ASKED = (Position.END, Position.START, Position.MIDDLE)
"""The order in which a stratum's readers are asked: the last page first, which no length excuses."""
DEFAULT_PAGE_TOKENS = 64
ASSUMED_POOL = 1.5
"""Tokens in flight at once where no pool is known, as a multiple of the context limit."""
USABLE_POOL = 0.97
"""Part of a known pool that the plan will ever have in use: overfilling can crash an engine."""
SHORT_TOKENS = 4_096
"""A bystander's prompt, where the context allows it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One exchange to be sent."""

    number: int
    probe: str
    group: str
    purpose: Purpose
    tenant: int
    tokens: int
    asked: Position
    max_tokens: int
    rank: int | None = None
    """DP rank to steer it to; None leaves it to the router."""
    shape: Shape | None = None
    """Given when an earlier run is replayed word for word; else made from ``tokens`` when it is sent."""
    drop_at: float | str | None = None
    """When to let go of it: see ``kvcanary.probing.grammar.Abort``."""
    expected: Expectation = Expectation.EITHER


@dataclass(frozen=True, slots=True)
class Stage:
    """Exchanges that are sent in this order, ``in_flight`` at a time, bystanders apart; ``hold``: all at
    once, then released. One without exchanges only waits."""

    group: str
    exchanges: tuple[Planned, ...]
    in_flight: int
    hold: bool = False
    danger: float = 1.0
    """How much its first answer is worth beside those of other stages."""
    together: str | None = None
    """Neighbours with the same word here are sent at the same time."""
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be sent, and what will not with the reason."""

    stages: tuple[Stage, ...]
    skipped: tuple[str, ...]
    unmet: tuple[UnmetNeed, ...] = ()

    @property
    def exchanges(self) -> tuple[Planned, ...]:
        return tuple(e for stage in self.stages for e in stage.exchanges)

    @property
    def tokens(self) -> int:
        """Prompt tokens of the whole plan."""
        return sum(e.tokens for e in self.exchanges)


def make_plan(
    probes: Sequence[Probe],
    facts: Facts,
    context_tokens: int,
    calibration: Calibration,
    concurrency: int,
    first_number: int,
    bound: float | None = None,
    situation: Situation | None = None,
) -> Plan:
    """Bind the probes' lengths to this deployment. Strata of several probes carry the probe's name.

    ``bound``: rate of bad answers that each stratum has to be shown to stay below. ``situation``: what probes
    may need; without it all needs are taken to be met.
    """
    numbers = count(first_number)
    stages: list[Stage] = []
    skipped: list[str] = []
    missing: list[UnmetNeed] = []
    for probe in probes:
        lacking = unmet(probe.id, probe.needs, situation) if situation else ()
        missing += lacking
        skipped += (f"probe {u.probe}: needs {u.need}, and {u.reason}" for u in lacking)
        if lacking:
            continue
        prefix = f"{probe.id}/" if len(probes) > 1 else ""
        planner = _Planner(probe, prefix, facts, context_tokens, calibration, concurrency, numbers)
        planner.least_readers = answers_for_leaks(bound, SIMULATIONS) if bound else 1
        stages += planner.stages()
        skipped += planner.skipped
    return Plan(tuple(stages), tuple(skipped), tuple(missing))


def replay_plan(
    exchanges: Sequence[Exchange], concurrency: int, pool_tokens: int | None = None
) -> Plan:
    """The stages of an earlier run again: same numbers, shapes and questions, in the same order.

    ``pool_tokens``: what may be in use at once, where it is known.
    """
    stages = []
    for group, members in groupby(sorted(exchanges, key=lambda e: e.number), key=_stage_of):
        planned = tuple(
            Planned(
                number=e.number,
                probe=e.probe,
                group=e.group,
                purpose=e.purpose,
                tenant=e.tenant,
                tokens=e.planned_tokens or e.length_tokens,
                asked=e.asked,
                max_tokens=e.max_tokens,
                shape=Shape(e.chapters_before, e.chapters_after, e.pad_words),
                drop_at=e.drop_at,
                expected=e.expected,
            )
            for e in members
        )
        hold = planned[0].purpose is Purpose.FILL
        in_flight = len(planned) if hold else concurrency
        if pool_tokens and not hold:
            longest = max(e.tokens + e.max_tokens for e in planned)
            in_flight = max(1, min(concurrency, int(USABLE_POOL * pool_tokens // longest)))
        stages.append(Stage(group, planned, in_flight, hold))
    return Plan(tuple(stages), ())


def _at_once(stage: Stage) -> int:
    """Tokens of a stage that may be in the pool at the same time, output included."""
    sizes = sorted((e.tokens + e.max_tokens for e in stage.exchanges), reverse=True)
    beside = sum(e.purpose is Purpose.BYSTANDER for e in stage.exchanges)
    return sum(sizes[: stage.in_flight + beside])


def _stage_of(exchange: Exchange) -> str:
    return exchange.group


class _Planner:
    def __init__(
        self,
        probe: Probe,
        prefix: str,
        facts: Facts,
        context_tokens: int,
        calibration: Calibration,
        concurrency: int,
        numbers: Iterator[int],
    ) -> None:
        self._probe, self._prefix, self._context = probe, prefix, context_tokens
        self._calibration, self._concurrency = calibration, concurrency
        self._numbers = numbers
        self._output = min(probe.output, max(16, context_tokens // 8))
        page = facts.page_tokens or min(DEFAULT_PAGE_TOKENS, max(1, context_tokens // 32))
        reach = context_tokens - self._output - page
        limit = facts.limit_tokens
        pool = facts.decode_pool_tokens
        self._in_flight_tokens = USABLE_POOL * pool if pool else ASSUMED_POOL * context_tokens
        pools = [p for p in (facts.prefill_pool_tokens, pool) if p is not None]
        self._variables: dict[str, float | None] = {
            "context": context_tokens,
            "page": page,
            "limit": limit,
            "reach": reach,
            "output": self._output,
            "window": float(limit is not None and limit < reach),
            "pool": min(pools, default=None),
            "prefill.pool": facts.prefill_pool_tokens,
            "decode.pool": pool,
        }
        self._share = 1
        """Stages among which room and concurrency are shared."""
        self._most = int(calibration.base_tokens + MAX_CHAPTERS * calibration.chapter_tokens)
        self.skipped: list[str] = []
        self.least_readers = 1

    def stages(self) -> list[Stage]:
        """The probe's steps as stages; what cannot be sent is noted in ``skipped``."""
        return [stage for step in self._probe.steps for stage in self._step(step)]

    def _step(self, step: Step) -> list[Stage]:
        match step:
            case Fill():
                return self._fill(step)
            case Wait():
                return [Stage(f"{self._prefix}wait", (), 0, wait=step)]
            case Together():
                return self._together(step)
            case Abort() if evaluate(step.when, self._variables):
                return self._abort(step)
            case Read() if evaluate(step.when, self._variables):
                return self._read(step)
        return []

    def _together(self, step: Together) -> list[Stage]:
        """Strata that share the pool's room. Those that do not fit beside the others at all are left out."""
        self._share = len(step.steps)
        stages = [stage for inner in step.steps for stage in self._step(inner)]
        self._share = 1
        room = self._in_flight_tokens
        kept: list[Stage] = []
        for stage in stages:
            at_once = _at_once(stage)
            if kept and at_once > room:
                self.skipped.append(f"{stage.group}: no room in the pool beside the others")
                continue
            room -= at_once
            kept.append(replace(stage, together=self._prefix + step.steps[0].group))
        return kept

    def _fill(self, step: Fill) -> list[Stage]:
        total = evaluate(step.tokens, self._variables)
        longest = evaluate(step.longest, self._variables)
        if total is None or longest is None:
            self.skipped.append(f"{step.group}: its length depends on something unknown")
            return []
        output = min(step.output, self._context // 8)
        longest = min(self._safe(min(longest, self._context - output)), self._most)
        victims = min(MAX_VICTIMS, math.ceil(total / max(1, longest + output)))
        tokens = int(min(longest, total / victims - output)) if victims > 0 else 0
        if not self._fits(tokens):
            self.skipped.append(
                f"{step.group}: {tokens:,} tokens leave no room for a canary prompt"
            )
            return []
        exchanges = tuple(
            Planned(
                number=next(self._numbers),
                probe=self._probe.id,
                group=self._prefix + step.group,
                purpose=Purpose.FILL,
                tenant=FIRST_VICTIM + victim,
                tokens=tokens,
                asked=Position.END,
                max_tokens=output,
            )
            for victim in range(victims)
        )
        group = self._prefix + step.group
        return [Stage(group, exchanges, in_flight=victims, hold=True, danger=step.danger)]

    def _abort(self, step: Abort) -> list[Stage]:
        """Pairs, one after the other: the prompt that is dropped, and the reader that follows at once."""
        if self._calibration.first_token is None:
            self.skipped.append(f"{step.group}: how long a first token takes is unknown")
            return []
        tokens = self._length(step.group, step.tokens)
        if tokens is None:
            return []
        exchanges: list[Planned] = []
        pairs = zip(step.at, cycle(READERS), cycle(ASKED), cycle(range(MAX_VICTIMS)), strict=False)
        for moment, reader, position, victim in pairs:
            dropped = Planned(
                number=next(self._numbers),
                probe=self._probe.id,
                group=self._prefix + "dropped",
                purpose=Purpose.DROPPED,
                tenant=FIRST_VICTIM + victim,
                tokens=tokens,
                asked=Position.END,
                max_tokens=self._output,
                drop_at=moment,
            )
            exchanges += [dropped, self._reader(step, reader, position, tokens, Purpose.READER)]
        return [Stage(self._prefix + step.group, tuple(exchanges), 1, danger=step.danger)]

    def _reader(
        self, step: Read | Abort, tenant: int, asked: Position, tokens: int, purpose: Purpose
    ) -> Planned:
        return Planned(
            number=next(self._numbers),
            probe=self._probe.id,
            group=self._prefix + step.group,
            purpose=purpose,
            tenant=tenant,
            tokens=tokens,
            asked=asked,
            max_tokens=self._output,
            expected=step.expect,
        )

    def _length(self, group: str, expression: str) -> int | None:
        """A length that can be sent; None, and noted, where there is none."""
        value = evaluate(expression, self._variables)
        tokens = None if value is None else self._safe(value)
        if tokens is None or not self._fits(tokens):
            self.skipped.append(
                f"{group}: its length depends on something unknown"
                if tokens is None
                else f"{group}: {tokens:,} tokens leave no room for a canary prompt"
            )
            return None
        if tokens > self._most:
            self.skipped.append(
                f"{group}: {tokens:,} tokens; the longest canary prompt has about {self._most:,}, so it "
                "is tested at that length"
            )
            return self._most
        return tokens

    def _read(self, step: Read) -> list[Stage]:
        tokens = self._length(step.group, step.tokens)
        if tokens is None:
            return []
        count = max(step.count, self.least_readers)
        readers = zip(islice(cycle(READERS), count), cycle(ASKED), strict=False)
        purpose = Purpose.CONTROL if step.control else Purpose.READER
        exchanges = [self._reader(step, tenant, at, tokens, purpose) for tenant, at in readers]
        bystanders = [self._bystander(step.group, index) for index in range(step.bystanders)]
        beside = sum(e.tokens + e.max_tokens for e in bystanders)
        fits = int((self._in_flight_tokens / self._share - beside) // (tokens + self._output))
        in_flight = max(1, min(fits, self._concurrency // self._share - step.bystanders))
        for bystander in bystanders:
            exchanges.insert(min(1, len(exchanges)), bystander)
        group = self._prefix + step.group
        return [Stage(group, tuple(exchanges), in_flight, danger=step.danger)]

    def _bystander(self, beside: str, index: int) -> Planned:
        return Planned(
            number=next(self._numbers),
            probe=self._probe.id,
            group=self._prefix + "bystanders",
            purpose=Purpose.BYSTANDER,
            tenant=BYSTANDER,
            tokens=max(
                self._calibration.base_tokens,
                min(SHORT_TOKENS, int(self._variables["reach"] or 0) // 8),
            ),
            asked=list(Position)[(len(beside) + index) % 3],
            max_tokens=self._output,
        )

    def _safe(self, tokens: float) -> int:
        """A length that stays at or below ``tokens`` even if the prediction is off."""
        return int(tokens) - self._calibration.uncertainty(int(tokens))

    def _fits(self, tokens: int) -> bool:
        return tokens >= self._calibration.base_tokens

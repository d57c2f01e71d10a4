"""Binds the steps of one probe to a deployment: stages with lengths, tenants and rooms. Pure."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, cycle, islice, repeat

from kvcanary.canary.prompt import MAX_CHAPTERS, Position
from kvcanary.deployment.facts import Facts
from kvcanary.probing.grammar import Abort, Fill, Probe, Read, Refuse, Repeat, Step, Together, Wait
from kvcanary.probing.lengths import evaluate
from kvcanary.probing.planned import Pad, Planned, Stage
from kvcanary.probing.roles import BYSTANDER, FIRST_VICTIM, MAX_VICTIMS, READERS
from kvcanary.probing.sizing import ASSUMED, Calibration
from kvcanary.record.exchange import Purpose
from kvcanary.record.manner import USUAL, Manner

ASKED = (Position.END, Position.START, Position.MIDDLE)
"""The order in which a stratum's readers are asked: the last page first, which no length excuses."""
DEFAULT_PAGE_TOKENS = 64
ASSUMED_POOL = 1.5
"""Tokens in flight at once where no pool is known, as a multiple of the context limit."""
USABLE_POOL = 0.97
"""Part of a known pool that the plan will ever have in use, but where a step says otherwise: overfilling can
crash an engine."""
SHORT_TOKENS = 4_096
"""A bystander's prompt, where the context allows it."""
MOST_PROMPTS = 1_000
"""Of one step."""
REFUSALS_AT_ONCE = 2
"""A spoilt request and the honest one beside it."""


class Planner:
    """Binds one probe's steps."""

    def __init__(
        self,
        probe: Probe,
        prefix: str,
        facts: Facts,
        context_tokens: int,
        calibration: Calibration,
        concurrency: int,
        numbers: Iterator[int],
        turn: int = 0,
    ) -> None:
        self._probe, self._prefix, self._context = probe, prefix, context_tokens
        self._calibration, self._concurrency = calibration, concurrency
        self._numbers, self._turn = numbers, turn
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
        self._round = 0
        """Which of the rounds of a repetition this is."""
        self._most = int(calibration.base_tokens + MAX_CHAPTERS * calibration.chapter_tokens)
        self._read_before: dict[str, list[Planned]] = {}
        """What the steps so far read, by the group that the probe calls it."""
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
            case Repeat():
                return self._repeat(step)
            case Abort() if evaluate(step.when, self._variables):
                return self._abort(step)
            case Refuse() if evaluate(step.when, self._variables):
                return self._refuse(step)
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

    def _repeat(self, step: Repeat) -> list[Stage]:
        """The rounds one after the other; tenants and questions go on from round to round."""
        stages = []
        for self._round in range(step.times):
            for inner in step.steps:
                if isinstance(inner, Read):
                    self._read_before.pop(inner.group, None)
            stages += [stage for inner in step.steps for stage in self._step(inner)]
        self._round = 0
        self.skipped = list(dict.fromkeys(self.skipped))
        return stages

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
        if self._calibration.first_token is None and self._calibration != ASSUMED:
            self.skipped.append(f"{step.group}: how long a first token takes is unknown")
            return []
        tokens = self._length(step.group, step.tokens)
        if tokens is None:
            return []
        exchanges: list[Planned] = []
        moments = chain.from_iterable(repeat(step.at, step.rounds))
        for index, moment in enumerate(moments):
            before = self._before("dropped", Purpose.DROPPED, index, tokens)
            reader = self._reader(step.group, index, tokens, Purpose.READER)
            exchanges += [
                replace(before, drop_at=moment),
                replace(reader, expected=step.expect),
            ]
        return [Stage(self._prefix + step.group, tuple(exchanges), 1, danger=step.danger)]

    def _refuse(self, step: Refuse) -> list[Stage]:
        """Pairs at the same time: what has to be refused, and an honest reader."""
        tokens = self._length(step.group, step.tokens)
        if tokens is None:
            return []
        exchanges: list[Planned] = []
        for index, kind in enumerate(chain.from_iterable(repeat(step.kinds, step.rounds))):
            spoilt = self._before("spoilt", Purpose.SPOILT, index, tokens)
            exchanges += [
                replace(spoilt, asked=ASKED[index % 3], manner=Manner(spoilt=kind)),
                self._reader(step.group, index, tokens, Purpose.READER),
            ]
        group = self._prefix + step.group
        return [Stage(group, tuple(exchanges), REFUSALS_AT_ONCE, danger=step.danger)]

    def _before(self, group: str, purpose: Purpose, index: int, tokens: int) -> Planned:
        """What goes before a reader, of a tenant that no reader is."""
        return Planned(
            number=next(self._numbers),
            probe=self._probe.id,
            group=self._prefix + group,
            purpose=purpose,
            tenant=FIRST_VICTIM + index % MAX_VICTIMS,
            tokens=tokens,
            asked=Position.END,
            max_tokens=self._output,
        )

    def _reader(self, group: str, index: int, tokens: int, purpose: Purpose) -> Planned:
        """The reader of that place in its stratum."""
        index += self._round
        return Planned(
            number=next(self._numbers),
            probe=self._probe.id,
            group=self._prefix + group,
            purpose=purpose,
            tenant=READERS[index % len(READERS)],
            tokens=tokens,
            asked=ASKED[index % len(ASKED)],
            max_tokens=self._output,
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
        exchanges = self._fresh(step) if step.again is None else self._again(step, step.again)
        if not exchanges:
            return []
        self._read_before.setdefault(step.group, []).extend(exchanges)
        bystanders = [self._bystander(step.group, index) for index in range(step.bystanders)]
        in_flight = self._in_flight(step, exchanges, bystanders)
        for bystander in bystanders:
            exchanges.insert(min(1, len(exchanges)), bystander)
        group = self._prefix + step.group
        crowd = step.at_once is not None
        return [Stage(group, tuple(exchanges), in_flight, danger=step.danger, crowd=crowd)]

    def _in_flight(self, step: Read, readers: list[Planned], beside: list[Planned]) -> int:
        """So many at a time as are wanted and, unless the pool is to be overfilled, have room."""
        wanted = step.at_once or self._concurrency // self._share - len(beside)
        if not step.overfill:
            taken = sum(e.tokens + e.max_tokens for e in beside)
            each = max(e.tokens + e.max_tokens for e in readers)
            wanted = min(wanted, int((self._in_flight_tokens / self._share - taken) // each))
        return max(1, wanted)

    def _fresh(self, step: Read) -> list[Planned]:
        """Readers with text of their own."""
        lengths = step.in_turn or (step.tokens,)
        expression = lengths[self._turn % len(lengths)]
        assert expression is not None  # noqa: S101 - the grammar says so
        tokens = self._length(step.group, expression)
        if tokens is None:
            return []
        purpose = Purpose.CONTROL if step.control else Purpose.READER
        count = max(step.count, self.least_readers, self._count_of(step, tokens))
        features = list(islice(cycle(step.features), count))
        readers = []
        for index, feature in enumerate(features):
            reader = self._reader(step.group, index, tokens, purpose)
            if not feature.keeps_the_answer:
                reader = replace(reader, group=reader.group + "-with", purpose=Purpose.FEATURE)
            if step.adapter:
                reader = replace(reader, purpose=Purpose.ADAPTED)
            manner = self._manner(step).model_copy(update={"feature": feature})
            readers.append(
                replace(
                    reader,
                    manner=USUAL if manner == USUAL else manner,
                    asked=Position.START if step.recite else reader.asked,
                    max_tokens=self._output_of(step),
                    expected=step.expect,
                )
            )
        return readers

    def _count_of(self, step: Read, tokens: int) -> int:
        """How many it takes to have so many tokens together; 0 where that is not asked or not known."""
        total = None if step.total is None else evaluate(step.total, self._variables)
        return 0 if total is None else min(MOST_PROMPTS, math.ceil(total / tokens))

    def _again(self, step: Read, group: str) -> list[Planned]:
        """The texts of an earlier step, as their own tenants or as others."""
        pad = self._pad(step)
        if pad is None:
            self.skipped.append(f"{step.group}: its length depends on something unknown")
            return []
        other = step.tenant == "other"
        visits = []
        for first in self._read_before.get(group, ()):
            manner = self._manner(step).model_copy(
                update={
                    "begun": first.manner.begun,
                    "recite": first.manner.recite,
                    "salted": first.manner.salted or step.salted,
                    "sent_as": _neighbour(first.tenant) if other else first.manner.sent_as,
                }
            )
            tokens = pad.exactly + pad.plus if pad.exactly is not None else first.tokens + pad.most
            visits.append(
                replace(
                    first,
                    number=next(self._numbers),
                    group=self._prefix + step.group,
                    purpose=_visit(step),
                    tokens=tokens,
                    max_tokens=self._output_of(step),
                    expected=step.expect,
                    again=first.number,
                    pad=pad,
                    manner=manner,
                )
            )
        return visits

    def _pad(self, step: Read) -> Pad | None:
        """None where its figure is unknown."""
        for name, expression in (("exactly", step.exactly), ("multiple", step.multiple)):
            if expression is not None:
                value = evaluate(expression, self._variables)
                if value is None or value < 1:
                    return None
                return Pad(**{name: int(value)}, plus=step.plus)
        return Pad()

    def _manner(self, step: Read) -> Manner:
        return Manner(
            begun=step.begun,
            recite=step.recite,
            adapter=step.adapter,
            salted=step.salted,
            full_output=step.full_output,
            crowded=step.at_once is not None and step.at_once > 1,
            one_name=step.one_name,
        )

    def _output_of(self, step: Read) -> int:
        """A step's own output, within an eighth of the context as all are."""
        return (
            self._output if step.output is None else min(step.output, max(16, self._context // 8))
        )

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


def _visit(step: Read) -> Purpose:
    """What it is to send a text again."""
    if step.adapter:
        return Purpose.ADAPTED
    return Purpose.VISITOR if step.tenant == "other" else Purpose.RETURN


def _neighbour(tenant: int) -> int:
    """Another reader, which a deployment file's identities never make the same."""
    return tenant + 1 if tenant + 1 in READERS else tenant - 1


def _at_once(stage: Stage) -> int:
    """Tokens of a stage that may be in the pool at the same time, output included."""
    sizes = sorted((e.tokens + e.max_tokens for e in stage.exchanges), reverse=True)
    beside = sum(e.purpose is Purpose.BYSTANDER for e in stage.exchanges)
    return sum(sizes[: stage.in_flight + beside])

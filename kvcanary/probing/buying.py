"""Prices, and what to buy within a budget.

First what makes a plan useful at all: one answer of the most dangerous length that can be paid for, then
the fill before it, then one answer of the control. Then the most danger per token: a reader's danger is its
step's, divided by its place in the stratum, since the first answer in a stratum tells most. So the least
useful plan is one fill and one request in the window.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kvcanary.probing.lengths import evaluate
from kvcanary.probing.planned import Plan, Planned, Stage
from kvcanary.probing.sizing import Calibration
from kvcanary.record.exchange import Purpose
from kvcanary.record.run import Overhead, PlanNote, StagePrice


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend, all together; None: no limit."""

    tokens: int | None = None
    seconds: float | None = None
    tokens_per_minute: int | None = None
    """What the API key allows: paces the run and rules out prompts that never pass."""


NO_LIMIT = Budget()
COMPANIONS = (Purpose.DROPPED, Purpose.SPOILT)
"""Sent before a reader, and bought with it."""


def tokens_allowed(given: Budget, expression: str | None, context_tokens: int) -> int | None:
    """Prompt tokens that may be planned: as given, else as the suite's length expression has it."""
    if given.tokens is not None or expression is None:
        return given.tokens
    value = evaluate(expression, {"context": context_tokens})
    return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class Price:
    """``seconds`` is None where calibration could not time anything."""

    tokens: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class _Item:
    """Exchanges that are bought together."""

    stage: int
    exchanges: tuple[Planned, ...]
    danger: float
    tokens: int
    seconds: float


def charged(exchanges: Iterable[Planned]) -> int:
    """Tokens that a gateway counts against the key's minute: prompts, and the outputs asked for."""
    return sum(e.tokens + e.max_tokens for e in exchanges)


def price(exchanges: Sequence[Planned], in_flight: int, calibration: Calibration) -> Price:
    """Prompt tokens, and seconds if prefill takes one prompt at a time and decode ``in_flight``."""
    tokens = sum(e.tokens for e in exchanges)
    if calibration.first_token is None:
        return Price(tokens, None)
    prefill = sum(calibration.first_token.seconds(e.tokens) for e in exchanges)
    released = (Purpose.FILL, Purpose.DROPPED)
    output = sum(e.max_tokens for e in exchanges if e.purpose not in released)
    decode = output * (calibration.output_token_seconds or 0.0) / max(1, in_flight)
    return Price(tokens, prefill + decode)


def plan_price(plan: Plan, calibration: Calibration, budget: Budget) -> Price:
    """The whole plan, paced as the key allows."""
    sent = [stage for stage in plan.stages if stage.exchanges]
    prices = [price(stage.exchanges, stage.in_flight, calibration) for stage in sent]
    tokens = sum(p.tokens for p in prices)
    known = [p.seconds for p in prices if p.seconds is not None]
    waits = sum(stage.wait.seconds for stage in plan.stages if stage.wait)
    seconds = waits + sum(known) if len(known) == len(prices) else None
    if budget.tokens_per_minute:
        paced = 60.0 * charged(plan.exchanges) / budget.tokens_per_minute
        seconds = max(seconds or 0.0, paced)
    return Price(tokens, seconds)


def plan_note(
    plan: Plan,
    calibration: Calibration,
    budget: Budget,
    overhead: Sequence[Overhead],
    first_number: int = 0,
) -> PlanNote:
    """The plan as the record keeps it, with what is sent besides."""
    total = plan_price(plan, calibration, budget)
    stages = []
    sent = [stage for stage in plan.stages if not stage.wait]
    for group in dict.fromkeys(stage.group for stage in sent):
        rounds = [stage for stage in sent if stage.group == group]
        exchanges = [e for stage in rounds for e in stage.exchanges]
        costs = [price(stage.exchanges, stage.in_flight, calibration) for stage in rounds]
        known = [cost.seconds for cost in costs if cost.seconds is not None]
        stages.append(
            StagePrice(
                stratum=group,
                purpose=_serves(rounds[0]),
                requests=len(exchanges),
                longest_tokens=max(e.tokens for e in exchanges),
                prompt_tokens=sum(cost.tokens for cost in costs),
                seconds=sum(known) if len(known) == len(costs) else None,
            )
        )
    return PlanNote(
        first_number=first_number,
        stages=tuple(stages),
        requests=len(plan.exchanges),
        prompt_tokens=total.tokens,
        seconds=total.seconds,
        skipped=plan.skipped,
        overhead=tuple(overhead),
        most_prompt_tokens=_most(plan, calibration, budget, overhead),
        unmet=plan.unmet,
    )


def _most(
    plan: Plan, calibration: Calibration, budget: Budget, overhead: Sequence[Overhead]
) -> int:
    """What the run will not exceed: the budget, or stages and overhead at their most. What was sent before
    there was a plan cannot be less than it is."""
    stages = sum(at_most(e.tokens, calibration) for e in plan.exchanges)
    most = stages + sum(o.most_prompt_tokens for o in overhead)
    if budget.tokens is None:
        return most
    return min(most, max(budget.tokens, stages + sum(o.prompt_tokens for o in overhead[:1])))


def at_most(tokens: int, calibration: Calibration) -> int:
    """What the server may count for a prompt of this length: predictions are a little off."""
    return tokens + calibration.uncertainty(tokens)


def _serves(stage: Stage) -> str:
    """What a stage is bought for, in a few words."""
    if stage.hold:
        return "dirties the pool: isolation"
    purposes = {e.purpose for e in stage.exchanges}
    if Purpose.DROPPED in purposes:
        return "reads what dropped prompts gave back"
    if Purpose.SPOILT in purposes:
        return "reads beside what has to be refused"
    if Purpose.RETURN in purposes:
        return "reads the same text again"
    if Purpose.ADAPTED in purposes:
        return "reads with an adapter"
    if Purpose.VISITOR in purposes:
        return "reads it as another tenant"
    if any(e.purpose is Purpose.CONTROL for e in stage.exchanges):
        return "control of the other strata"
    return "ownership and isolation at this length"


def buy(plan: Plan, budget: Budget, calibration: Calibration, besides: int = 0) -> Plan:
    """The plan within the budget; what was not bought is said in ``skipped``.

    ``besides``: prompt tokens that are sent in any case, calibration and its like.
    """
    bought: dict[int, list[Planned]] = {}
    notes: dict[str, str] = {}
    controls = {index for index, stage in enumerate(plan.stages) if _is_control(stage)}
    readers_bought = not any(
        stage.exchanges and not stage.hold and index not in controls
        for index, stage in enumerate(plan.stages)
    )
    tokens, seconds = besides, 0.0
    for item in _in_order(plan, _items(plan, calibration), budget, besides):
        if item.stage in controls and not readers_bought:
            notes[plan.stages[item.stage].group] = "not bought: a control of nothing"
            continue
        stage = plan.stages[item.stage]
        longest = max(charged([e]) for e in item.exchanges)
        if budget.tokens_per_minute and longest > budget.tokens_per_minute:
            notes[stage.group] = (
                f"({longest:,} tokens with output) are more than the key may send in a minute"
            )
            continue
        paced = 0.0
        if budget.tokens_per_minute:
            paced = 60.0 * charged(item.exchanges) / budget.tokens_per_minute
        cost = max(item.seconds, paced)
        if _beyond(tokens + item.tokens, budget.tokens) or _beyond(seconds + cost, budget.seconds):
            notes[stage.group] = "not bought: beyond the budget"
            continue
        readers_bought = readers_bought or (not stage.hold and item.stage not in controls)
        bought.setdefault(item.stage, []).extend(item.exchanges)
        tokens, seconds = tokens + item.tokens, seconds + cost
    stages: list[Stage] = []
    skipped = list(plan.skipped)
    missing: dict[str, int] = {}
    numbers: set[int] = set()
    for index, stage in enumerate(plan.stages):
        mine = {e.number for e in bought.get(index, ())}
        kept = tuple(
            e
            for e in stage.exchanges
            if e.number in mine and (e.again is None or e.again in numbers)
        )
        numbers |= {e.number for e in kept}
        if kept or stage.wait:
            stages.append(replace(stage, exchanges=kept))
        lacking = len(_wanted(stage.exchanges)) - len(_wanted(kept))
        if lacking:
            missing[stage.group] = missing.get(stage.group, 0) + lacking
    for group, count in missing.items():
        why = notes.get(group, "not bought: their first visit was not")
        skipped.append(f"{group}: {count} of its requests {why}")
    return replace(plan, stages=tuple(stages), skipped=tuple(skipped))


def _wanted(exchanges: Iterable[Planned]) -> list[Planned]:
    """Those that tell something themselves: bystanders, what is dropped and what is spoilt go with them."""
    return [e for e in exchanges if e.purpose not in (Purpose.BYSTANDER, *COMPANIONS)]


def _in_order(plan: Plan, items: Sequence[_Item], budget: Budget, besides: int) -> list[_Item]:
    """The most dangerous reader that can be paid for, the fill, a control; then danger per token."""
    first: dict[int, _Item] = {}
    for item in items:
        first.setdefault(item.stage, item)
    fills = [i for i in first.values() if plan.stages[i.stage].hold]
    controls = [i for i in first.values() if _is_control(plan.stages[i.stage])]
    readers = [i for i in first.values() if i not in fills and i not in controls]
    readers = [i for i in readers if not _beyond(besides + i.tokens, budget.tokens)]
    readers.sort(key=lambda i: -i.danger)
    useful = [*readers[:1], *fills, *controls]
    rest = sorted((i for i in items if i not in useful), key=lambda i: -i.danger / max(1, i.tokens))
    return [*useful, *rest]


def _is_control(stage: Stage) -> bool:
    return any(e.purpose is Purpose.CONTROL for e in stage.exchanges)


def _items(plan: Plan, calibration: Calibration) -> list[_Item]:
    items = []
    for index, stage in enumerate(plan.stages):
        if stage.hold:
            items.append(_item(index, stage, stage.exchanges, stage.danger, calibration))
            continue
        beside = tuple(e for e in stage.exchanges if e.purpose is Purpose.BYSTANDER)
        companions = [e for e in stage.exchanges if e.purpose in COMPANIONS]
        for place, reader in enumerate(_wanted(stage.exchanges), start=1):
            before = companions[place - 1 : place]
            together = (*before, reader, *beside) if place == 1 else (*before, reader)
            items.append(_item(index, stage, together, stage.danger / place, calibration))
    return items


def _item(
    index: int,
    stage: Stage,
    exchanges: tuple[Planned, ...],
    danger: float,
    calibration: Calibration,
) -> _Item:
    cost = price(exchanges, stage.in_flight, calibration)
    tokens = sum(at_most(e.tokens, calibration) for e in exchanges)
    return _Item(index, exchanges, danger, tokens, cost.seconds or 0.0)


def _beyond(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit

"""From a probe and the facts to the exchanges that will be sent. Pure: no I/O, no clock, no chance."""

from collections.abc import Sequence
from itertools import count, groupby

from kvcanary.canary.prompt import Shape
from kvcanary.deployment.facts import Facts
from kvcanary.probing.grammar import Probe
from kvcanary.probing.needs import Situation, unmet
from kvcanary.probing.planned import Plan, Planned, Stage
from kvcanary.probing.planner import USABLE_POOL, Planner
from kvcanary.probing.simulate import SIMULATIONS
from kvcanary.probing.sizing import Calibration
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.run import UnmetNeed
from kvcanary.verdict.statistics import answers_for_leaks


def make_plan(
    probes: Sequence[Probe],
    facts: Facts,
    context_tokens: int,
    calibration: Calibration,
    concurrency: int,
    first_number: int,
    bound: float | None = None,
    situation: Situation | None = None,
    turn: int = 0,
) -> Plan:
    """Bind the probes' lengths to this deployment. Strata of several probes carry the probe's name.

    ``bound``: rate of bad answers that each stratum has to be shown to stay below. ``situation``: what probes
    may need; without it all needs are taken to be met. ``turn``: which of the lengths in turn is due.
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
        planner = Planner(
            probe, prefix, facts, context_tokens, calibration, concurrency, numbers, turn
        )
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
                again=e.text_of,
                manner=e.manner,
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


def _stage_of(exchange: Exchange) -> str:
    return exchange.group

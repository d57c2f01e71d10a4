"""What a run sends besides the stages of its plan, with its price: as expected, and at most. Pure.

The runner keeps to each bound that is stated here; see ``kvcanary.probing.courier.Courier.affords``.
"""

import math
from collections.abc import Iterator, Sequence

from kvcanary.canary.prompt import Position, Shape
from kvcanary.detect.ownership import LEAST_SLIP_RATE, MAX_CONFIRMATIONS
from kvcanary.probing.boundary import ASKED, HALVINGS
from kvcanary.probing.buying import COMPANIONS, at_most
from kvcanary.probing.calibrate import LONGEST, MORE_RETRIES, RETRIES
from kvcanary.probing.planned import Plan, Stage
from kvcanary.probing.roles import SWITCHES
from kvcanary.probing.simulate import PAGE_ROOM, PAGES, SIMULATIONS
from kvcanary.probing.sizing import Calibration
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.run import Overhead
from kvcanary.record.simulation import Simulation

EXTRA_PER_PAIR = 2
"""Further readers of a stratum for each pair of workers, to have all of them met."""
_CONFIRMED = (Purpose.READER, Purpose.CONTROL, Purpose.BYSTANDER)
_DECOY = Shape(0, 1, 0)


def spent(exchanges: Sequence[Exchange], simulations: Sequence[Simulation]) -> Overhead:
    """What was sent before there was a plan: it is known."""
    requests = len(exchanges) + len(simulations)
    tokens = sum(e.length_tokens for e in exchanges) + sum(s.prompt_tokens for s in simulations)
    return _exactly("calibration, decoy and simulated leaks", requests, tokens)


def estimated(calibration: Calibration, context_tokens: int) -> Overhead:
    """The same where nobody may be asked."""
    base = calibration.base_tokens
    once = (
        base + round(calibration.chapter_tokens) + min(LONGEST, max(context_tokens // 16, 4 * base))
    )
    simulated = min(PAGES * PAGE_ROOM, context_tokens) * SIMULATIONS
    decoy = calibration.predict(_DECOY)
    more = len(SWITCHES) + MORE_RETRIES * len(Position)
    return Overhead(
        what="calibration, decoy and simulated leaks (estimated)",
        requests=6 + SIMULATIONS,
        prompt_tokens=3 * base + once + decoy + simulated,
        most_requests=5 + more + RETRIES + SIMULATIONS,
        most_prompt_tokens=(3 + more) * base + once + RETRIES * decoy + simulated,
    )


def after(
    plan: Plan, calibration: Calibration, pairs: int, *, limit_known: bool, slip_rate: float = 0.0
) -> Iterator[Overhead]:
    """What may be sent while the plan is, and after it.

    ``pairs``: of workers, where readers are sent until each was met; else 0. ``slip_rate``: how often this
    model loses a label in good conditions.
    """
    if not plan.exchanges:
        return
    decoy = decoy_tokens(calibration)
    yield Overhead(
        what="decoy at the end",
        requests=1,
        prompt_tokens=calibration.predict(_DECOY),
        most_requests=RETRIES,
        most_prompt_tokens=RETRIES * decoy,
    )
    yield _confirmations(plan, calibration, max(slip_rate, LEAST_SLIP_RATE))
    if pairs > 1:
        yield _meetings(plan, calibration, pairs)
    if not limit_known:
        most = HALVINGS * ASKED
        longest = max(at_most(e.tokens, calibration) for e in plan.exchanges)
        yield Overhead(
            what="search for a boundary, if something breaks",
            requests=0,
            prompt_tokens=0,
            most_requests=most,
            most_prompt_tokens=most * longest,
        )


def decoy_tokens(calibration: Calibration) -> int:
    """A decoy's prompt, at most."""
    return at_most(calibration.predict(_DECOY), calibration)


def slip_rate(exchanges: Sequence[Exchange]) -> float:
    """Part of calibration's answers that lost their label."""
    read = [e for e in exchanges if e.purpose is Purpose.CALIBRATION and e.read]
    return sum(not e.kept for e in read) / len(read) if read else 0.0


def _confirmations(plan: Plan, calibration: Calibration, slips: float) -> Overhead:
    """Each loss is asked again with fresh text; in a stratum of dropped prompts, another is dropped first."""
    expected_requests, expected_tokens = 0.0, 0.0
    most: dict[str, int] = {}
    requests: dict[str, int] = {}
    for stage in plan.stages:
        for e in stage.exchanges:
            if e.purpose not in _CONFIRMED:
                continue
            each = 2 if _paired(stage) and e.purpose is Purpose.READER else 1
            expected_requests += slips * each
            expected_tokens += slips * each * e.tokens
            tokens = MAX_CONFIRMATIONS * each * at_most(e.tokens, calibration)
            most[e.group] = max(most.get(e.group, 0), tokens)
            requests[e.group] = MAX_CONFIRMATIONS * each
    return Overhead(
        what="confirmations of lost labels",
        requests=math.ceil(expected_requests),
        prompt_tokens=round(expected_tokens),
        most_requests=sum(requests.values()),
        most_prompt_tokens=sum(most.values()),
    )


def _meetings(plan: Plan, calibration: Calibration, pairs: int) -> Overhead:
    expected_requests = expected_tokens = most_requests = most_tokens = 0
    for stage in plan.stages:
        readers = [e for e in stage.exchanges if e.purpose is Purpose.READER]
        if readers and not stage.together:
            missing = max(0, pairs - len(readers))
            expected_requests += missing
            expected_tokens += missing * readers[0].tokens
            most_requests += EXTRA_PER_PAIR * pairs
            most_tokens += EXTRA_PER_PAIR * pairs * at_most(readers[0].tokens, calibration)
    return Overhead(
        what="further readers, until every pair of workers was met",
        requests=expected_requests,
        prompt_tokens=expected_tokens,
        most_requests=most_requests,
        most_prompt_tokens=most_tokens,
    )


def _paired(stage: Stage) -> bool:
    """Whether each of its readers has a companion."""
    return any(e.purpose in COMPANIONS for e in stage.exchanges)


def _exactly(what: str, requests: int, tokens: int) -> Overhead:
    return Overhead(
        what=what,
        requests=requests,
        prompt_tokens=tokens,
        most_requests=requests,
        most_prompt_tokens=tokens,
    )

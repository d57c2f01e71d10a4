"""What a run would send and cost where nobody may be asked: by assumed tokens, of unknown workers. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from kvcanary.deployment.facts import Facts
from kvcanary.probing.buying import Budget, buy, plan_note, tokens_allowed
from kvcanary.probing.calibrate import RETRIES
from kvcanary.probing.grammar import Probe, Suite
from kvcanary.probing.overhead import after, decoy_tokens, estimated
from kvcanary.probing.plan import make_plan
from kvcanary.probing.sizing import ASSUMED
from kvcanary.record.run import PlanNote


def estimate(
    suite: Suite,
    probes: Sequence[Probe],
    context_tokens: int,
    context_source: str,
    concurrency: int,
    budget: Budget,
) -> PlanNote:
    """The plan of a deployment of which nothing but its context limit is known."""
    budget = replace(budget, tokens=tokens_allowed(budget, suite.tokens, context_tokens))
    wanted = make_plan(
        probes,
        Facts(context_tokens=context_tokens, context_source=context_source),
        context_tokens,
        ASSUMED,
        concurrency,
        first_number=0,
        bound=suite.bound,
    )
    before = estimated(ASSUMED, context_tokens)
    plan = buy(wanted, budget, ASSUMED, before.prompt_tokens + RETRIES * decoy_tokens(ASSUMED))
    overhead = (before, *after(plan, ASSUMED, pairs=0, limit_known=False))
    return plan_note(plan, ASSUMED, budget, overhead)

"""``kvcanary plan``: what a run would send, what that costs, and what it leaves out."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kvcanary.cli.running import Choices, new_record, run, run_options
from kvcanary.cli.targets import Connection, known_beforehand
from kvcanary.errors import KvcanaryError, UsageError

if TYPE_CHECKING:
    from kvcanary.record.run import PlanNote, RunRecord


@click.command(short_help="What a run would send, and its price.")
@run_options
@click.option(
    "--offline",
    is_flag=True,
    help="Contact nobody: prices in tokens, by estimate. Needs --context, a file that promises one, or a lab.",
)
def plan(connection: Connection, choices: Choices, offline: bool) -> int:
    """Print what `check` with the same options would send to TARGET, and what that costs.

    Sends only calibration and its control: about a dozen short prompts. With --offline nothing at all.

    \b
    Examples:
      kvcanary plan lab:glm-5.3 --tokens 3000000
      kvcanary plan https://llm.example.com/v1 --model glm-5.3 --minutes 10
      kvcanary plan https://llm.example.com/v1 --offline --context 1048576
    """
    if offline:
        _print(_offline(connection, choices))
        return 0
    import asyncio

    from kvcanary.verdict.claims import ExitCode

    new = new_record(None)
    try:
        record = asyncio.run(run(connection, choices, new, only_plan=True)).record
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        return ExitCode.INTERRUPTED
    if record.plan is None:
        raise KvcanaryError(record.stopped or "Nothing could be planned.")
    _print(record.plan, record)
    return 0


def _offline(connection: Connection, choices: Choices) -> "PlanNote":
    from kvcanary.deployment.facts import Facts
    from kvcanary.probing.buying import Budget, buy, plan_note, tokens_allowed
    from kvcanary.probing.calibrate import RETRIES
    from kvcanary.probing.grammar import load_probes, load_suite
    from kvcanary.probing.overhead import after, decoy_tokens, estimated
    from kvcanary.probing.plan import make_plan
    from kvcanary.probing.sizing import ASSUMED

    target = known_beforehand(connection)
    context = target.context_tokens
    if context is None:
        raise UsageError(
            "--offline needs --context, or a deployment file that says what context is promised: nobody is "
            "asked how long prompts may be."
        )
    suite = load_suite(choices.suite)
    budget = Budget(tokens=choices.tokens, tokens_per_minute=choices.tokens_per_minute)
    tokens = tokens_allowed(budget, suite.tokens, context)
    budget = replace(budget, tokens=tokens)
    wanted = make_plan(
        load_probes(choices.probes or suite.probes),
        Facts(context_tokens=context, context_source=target.context_source),
        context,
        ASSUMED,
        choices.concurrency,
        first_number=0,
        bound=suite.bound,
    )
    before = estimated(ASSUMED, context)
    plan = buy(wanted, budget, ASSUMED, before.prompt_tokens + RETRIES * decoy_tokens(ASSUMED))
    overhead = (before, *after(plan, ASSUMED, pairs=0, limit_known=False))
    return plan_note(plan, ASSUMED, budget, overhead)


def _print(note: "PlanNote", record: "RunRecord | None" = None) -> None:
    from kvcanary.report.console import Output
    from kvcanary.report.plan import print_plan

    print_plan(Output(), note, record)

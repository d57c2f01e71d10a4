"""``kvcanary plan``: what a run would send, what that costs, and what it leaves out."""

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
    from kvcanary.probing.buying import Budget
    from kvcanary.probing.estimate import estimate
    from kvcanary.probing.grammar import load_probes, load_suite

    target = known_beforehand(connection)
    context = target.context_tokens
    if context is None:
        raise UsageError(
            "--offline needs --context, or a deployment file that says what context is promised: nobody is "
            "asked how long prompts may be."
        )
    suite = load_suite(choices.suite)
    budget = Budget(tokens=choices.tokens, tokens_per_minute=choices.tokens_per_minute)
    probes = load_probes(choices.probes or suite.probes)
    return estimate(suite, probes, context, target.context_source, choices.concurrency, budget)


def _print(note: "PlanNote", record: "RunRecord | None" = None) -> None:
    from kvcanary.report.console import Output
    from kvcanary.report.plan import print_plan

    print_plan(Output(), note, record)

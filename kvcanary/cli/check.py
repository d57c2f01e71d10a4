"""``kvcanary check``: run the suite and say what it is worth."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.cli.baseline import baseline_option
from kvcanary.cli.output import Output, Reports, concluded, output_option, reports_option
from kvcanary.cli.running import Choices, new_record, resumed_record, run, run_options
from kvcanary.cli.targets import Connection, secret_variables
from kvcanary.cli.watch import NOTIFY_VARIABLE, notify_option, watch

if TYPE_CHECKING:
    from kvcanary.record.baseline import Baseline


def _words(_ctx: click.Context, _param: click.Parameter, command: str | None) -> list[str] | None:
    from kvcanary.report.hook import words_of

    return None if command is None else words_of(command)


@click.command(short_help="Check a deployment, or lab:NAME.")
@run_options
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the run record goes. Default: a new file in the user's state folder; its path is printed.",
)
@click.option(
    "--resume",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="RECORD",
    help="Go on with a run that was cut off; give the same TARGET and options.",
)
@click.option(
    "--known",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="RECORD",
    help="Look for parts of this older run's markers, too; may be given more than once. Whole ones are "
    "recognised without it.",
)
@baseline_option
@reports_option
@click.option(
    "--on-leak",
    metavar="COMMAND",
    callback=_words,
    help="Run this when a leak was found, with a redacted JSON summary on its standard input.",
)
@notify_option
@output_option
def check(
    connection: Connection,
    choices: Choices,
    record: Path | None,
    resume: Path | None,
    known: tuple[Path, ...],
    baseline: "Baseline | None",
    reports: Reports,
    on_leak: list[str] | None,
    notify: str | None,
    output: Output,
) -> int:
    """Send canary prompts as several tenants to TARGET and judge the answers.

    TARGET is the base URL of an OpenAI-compatible server, usually ending in /v1; the path of a deployment
    file, over which these options come first; or lab:NAME for a deployment in a box (see `kvcanary lab list`).

    \b
    Exit codes:
      0  every required claim passes       2  could not run
      1  a claim fails                     3  a required claim is inconclusive

    \b
    Examples:
      kvcanary check lab:glm-5.3
      kvcanary check https://llm.example.com/v1 --model glm-5.3 --context 1048576
      kvcanary init https://llm.example.com/v1 && kvcanary check kvcanary.yaml
      KVCANARY_API_KEY=... kvcanary check https://llm.example.com/v1 --report junit=canary.xml
    """
    from kvcanary.record.journal import load

    seen = watch(
        connection.target,
        choices.suite,
        (connection.model or "", *choices.probes),
        notify,
        trust_env=connection.trust_env,
    )
    new, earlier = resumed_record(resume) if resume else (new_record(record), None)
    one = run(
        connection,
        choices,
        new,
        resume=earlier,
        known=tuple(map(load, known)),
        baseline=baseline,
        turn=seen.before.turns,
    )
    secret = (*secret_variables(connection), NOTIFY_VARIABLE)
    return concluded(one, new.path, output, reports, on_leak, secret, seen)

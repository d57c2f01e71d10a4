"""``kvcanary capacity``: can every worker hold the longest request that is promised? No prompt is sent."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.cli.baseline import baseline_option
from kvcanary.cli.output import Output, Reports, concluded, output_option, reports_option
from kvcanary.cli.running import Record, given_waivers, new_record, waivers_option
from kvcanary.cli.targets import MAX_CONTEXT, Connection, opened, target_options

if TYPE_CHECKING:
    from kvcanary.record.baseline import Baseline
    from kvcanary.run import Result


@click.command(short_help="Can every worker hold what is promised?")
@target_options
@click.option(
    "--output-tokens",
    type=click.IntRange(1, MAX_CONTEXT),
    metavar="N",
    help="Output budget that is promised within the context limit. Default: the deployment file's.",
)
@click.option(
    "--deadline",
    "deadline_seconds",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for one document.",
)
@baseline_option
@waivers_option
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the record goes. Default: a new file in the user's state folder; its path is printed.",
)
@reports_option
@output_option
def capacity(
    connection: Connection,
    output_tokens: int | None,
    deadline_seconds: float,
    baseline: "Baseline | None",
    waivers: Path | None,
    record: Path | None,
    reports: Reports,
    output: Output,
) -> int:
    """Ask TARGET and its workers for their pools and limits, and judge them. No prompt is sent.

    TARGET is the base URL of an OpenAI-compatible server, usually ending in /v1; the path of a deployment
    file; or lab:NAME for a deployment in a box (see `kvcanary lab list`).

    \b
    Exit codes:
      0  every pool holds the promise      2  could not run
      1  one does not, or limits differ    3  a pool, or the promise, is unknown

    \b
    Examples:
      kvcanary capacity lab:glm-5.3
      kvcanary capacity https://llm.example.com/v1 --context 1048576 --output-tokens 32768
      kvcanary capacity https://llm.example.com/v1 --baseline last-week.jsonl -o json
    """
    new = new_record(record)
    one = _assessed(connection, output_tokens, waivers, new, deadline_seconds, baseline)
    return concluded(one, new.path, output, reports)


async def _assessed(
    connection: Connection,
    output_tokens: int | None,
    waivers: Path | None,
    record: Record,
    deadline_seconds: float,
    baseline: "Baseline | None",
) -> "Result":
    from kvcanary.assess import assess

    given = given_waivers(waivers)
    async with opened(connection) as found:
        target = replace(
            found,
            waivers=(*found.waivers, *given),
            output_tokens=output_tokens or found.output_tokens,
        )
        return await assess(
            target,
            identity=record.identity,
            record=record.path,
            deadline_seconds=deadline_seconds,
            baseline=baseline,
        )

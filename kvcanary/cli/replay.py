"""``kvcanary replay``: send the requests behind a finding again."""

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvcanary.cli.output import Reports, reports_option, write_reports
from kvcanary.cli.targets import TARGET, Connection, opened, reach_options
from kvcanary.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from kvcanary.record.exchange import Exchange
    from kvcanary.record.run import RunRecord
    from kvcanary.run import Result
    from kvcanary.verdict.claims import ExitCode
    from kvcanary.verdict.findings import Finding


@click.command(short_help="Send the requests behind a finding again.")
@click.argument("record", type=click.Path(path_type=Path))
@click.argument("finding", metavar="F1|F2|...")
@click.option(
    "--text",
    type=click.Choice(["same", "fresh", "both"]),
    default="both",
    show_default=True,
    help="Word for word (meets a poisoned cache), with fresh text, or one after the other.",
)
@click.option("--target", metavar=TARGET, help="Send to another place than the recorded one.")
@reach_options
@reports_option
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def replay(
    record: Path,
    finding: str,
    text: str,
    target: str | None,
    quiet: bool,
    reports: Reports,
    **reach: Any,
) -> int:
    """Send the requests behind FINDING of RECORD again: the victims, the control, the readers
    of its stratum. A report is written of the worse of two runs.

    \b
    Exit codes:
      0  the finding did not come back     2  could not run
      1  it came back                      3  it could not be measured
    """
    from kvcanary.canary.prompt import RunIdentity
    from kvcanary.canary.sitekey import load_or_create
    from kvcanary.probing.endpoint import UNNAMED, Api
    from kvcanary.record.journal import load
    from kvcanary.report.progress import progress
    from kvcanary.run import Options, Result, as_far_as_it_goes, run_check
    from kvcanary.verdict.claims import ExitCode

    recorded = as_far_as_it_goes(load(record))
    wanted = _wanted(recorded, finding)
    info = recorded.info
    if load_or_create().fingerprint() != info.site_key:
        raise UsageError(
            "The record was made with another site key: its text cannot be written again here. "
            "Set KVCANARY_SITE_KEY_FILE to the key it was made with."
        )
    try:
        api, nonce = Api(info.api), bytes.fromhex(info.nonce)
    except ValueError:
        raise ConfigError(
            f"{record} was not written by kvcanary: its api or nonce is none."
        ) from None
    connection = Connection(
        target=target or info.target,
        model=None if target else info.model,
        context_tokens=info.context_tokens,
        api=api.value,
        stream=info.stream,
        **reach,
    )
    groups = _groups(recorded, wanted)
    again = _again(recorded, groups)
    passes: list[RunIdentity | None] = []
    if text in ("same", "both"):
        passes.append(RunIdentity(info.run, nonce))
    if text in ("fresh", "both"):
        passes.append(None)

    async def run() -> list[Result]:
        results = []
        options = Options(
            suite=info.suite,
            concurrency=info.concurrency,
            deadline_seconds=info.deadline_seconds,
            contact=info.contact,
            again=again,
            replays=f"{info.run:07x}/{wanted.rule}",
        )
        async with opened(connection) as place:
            if place.endpoint.model == UNNAMED:
                place = replace(place, endpoint=replace(place.endpoint, model=info.model))
            with progress(quiet=quiet) as listener:
                for identity in passes:
                    one = replace(options, identity=identity)
                    results.append(await run_check(place, one, listener))
        return results

    results = asyncio.run(run())
    codes = [
        _told(result, wanted, groups, same=identity is not None)
        for result, identity in zip(results, passes, strict=True)
    ]
    worst = max(range(len(codes)), key=lambda i: (codes[i] is ExitCode.VIOLATION, codes[i]))
    told = results[worst]
    return write_reports(told.record, str(told.path), reports, codes[worst])


def _wanted(record: "RunRecord", finding: str) -> "Finding":
    number = finding.removeprefix("F")
    if not (number.isascii() and number.isdigit()) or not 1 <= int(number) <= len(record.findings):
        known = ", ".join(f"F{n} ({f.rule})" for n, f in enumerate(record.findings, start=1))
        raise UsageError(f"The record has no finding `{finding}`; it has: {known or 'none'}.")
    wanted = record.findings[int(number) - 1]
    if not wanted.exchanges:
        raise UsageError(
            f"{finding} ({wanted.rule}) comes from figures, not from requests: run check again."
        )
    return wanted


def _again(record: "RunRecord", groups: AbstractSet[str]) -> "tuple[Exchange, ...]":
    """Victims and control of the run, the finding's own strata, and the first visits of their texts."""
    from kvcanary.record.exchange import DECOYS, Purpose

    always = (Purpose.FILL, Purpose.CONTROL)
    never = (Purpose.CALIBRATION, Purpose.CONFIRMATION, Purpose.LADDER, *DECOYS)
    own = [e for e in record.exchanges if e.group in groups and e.purpose not in never]
    first = {e.text_of for e in own}
    return tuple(
        e for e in record.exchanges if e.purpose in always or e in own or e.number in first
    )


def _groups(record: "RunRecord", finding: "Finding") -> set[str]:
    """The strata of the requests that a finding is about: several, where its rule makes one of all."""
    return {e.group for e in record.exchanges if e.number in finding.exchanges}


def _told(
    result: "Result", wanted: "Finding", groups: AbstractSet[str], *, same: bool
) -> "ExitCode":
    from kvcanary.verdict.claims import ExitCode, Status
    from kvcanary.verdict.judge import CLAIM_OF_RULE

    record = result.record
    about = CLAIM_OF_RULE[wanted.rule.split("/")[0]]
    claims = record.verdict.claims if record.verdict else ()
    unknown = [c.text for c in claims if c.name is about and c.status is Status.INCONCLUSIVE]
    text = "the same text" if same else "fresh text"
    back = [f for f in record.findings if f.rule == wanted.rule and _groups(record, f) & groups]
    if back:
        click.echo(f"with {text}: it came back: {back[0].title}")
        code = ExitCode.VIOLATION
    elif record.verdict is None or record.stopped or unknown:
        why = record.stopped or "; ".join(unknown)
        click.echo(f"with {text}: could not be measured: {why}")
        code = ExitCode.INCONCLUSIVE
    else:
        click.echo(f"with {text}: it did not come back")
        code = ExitCode.PASS
    click.echo(f"  record  {result.path}")
    return code

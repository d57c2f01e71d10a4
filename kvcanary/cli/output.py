"""What commands print and which files they write, from a record."""

import functools
import sys
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from kvcanary.cli.exit_style import OPTION, ExitStyle, say_failure
from kvcanary.errors import ConfigError, KvcanaryError
from kvcanary.report.formats import FORMATS, PRINTED, format_named

if TYPE_CHECKING:
    from kvcanary.cli.watch import Watch
    from kvcanary.record.run import RunRecord
    from kvcanary.report.deliver import Report
    from kvcanary.run import Result


TEXT = "text"
"""What standard output holds unless it is told otherwise: the summary for a person."""


@dataclass(frozen=True, slots=True)
class Output:
    """What standard output holds: ``text`` or the name of a format."""

    format: str = TEXT


Reports: TypeAlias = "tuple[Report, ...]"


def _parsed(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> Reports:
    from kvcanary.report.deliver import asked_for, require_different

    reports = tuple(asked_for(value) for value in values)
    require_different(reports)
    return reports


def reports_option(command: Callable[..., int]) -> Callable[..., int]:
    """``--report FORMAT=WHERE``, repeatable."""
    return click.option(
        "--report",
        "reports",
        multiple=True,
        callback=_parsed,
        metavar="FORMAT=FILE",
        help="Write a report; may be given more than once. "
        f"Formats: {', '.join(f.usage for f in FORMATS.values())}.",
    )(command)


def output_option(command: Callable[..., int]) -> Callable[..., int]:
    """``-o FORMAT`` and ``--exit-style``, handed over as ``output``."""

    @functools.wraps(command)
    def with_output(output: str | None, exit_style: str, **values: object) -> int:
        usual = ExitStyle.NAGIOS.value if exit_style == ExitStyle.NAGIOS else TEXT
        return command(output=Output(output or usual), **values)

    style = click.option(
        OPTION,
        type=click.Choice([style.value for style in ExitStyle]),
        default=ExitStyle.OWN.value,
        show_default=True,
        help="Whose exit codes are used: with nagios 0 OK, 1 WARNING (inconclusive), 2 CRITICAL (a claim "
        "fails), 3 UNKNOWN (could not run), and one line with perfdata is printed.",
    )
    printed = click.option(
        "-o",
        "--output",
        type=click.Choice([TEXT, *PRINTED]),
        help="What is printed on standard output.  [default: text]",
    )
    return printed(style(with_output))


def concluded(
    run: "Coroutine[Any, Any, Result]",
    path: Path,
    output: Output,
    reports: Reports,
    on_leak: list[str] | None = None,
    secret: Collection[str] = (),
    watch: "Watch | None" = None,
) -> int:
    """Run, write the reports, print the outcome, return the exit code.

    ``path``: where the record goes. A run that does not reach its end leaves a partial one there.
    ``secret``: environment variables that the hook does not get. ``watch``: who is told of a change.
    """
    import asyncio

    from kvcanary.verdict.claims import ExitCode

    try:
        result = asyncio.run(run)
    except KeyboardInterrupt:
        return _cut_short("Interrupted.", ExitCode.INTERRUPTED, path)
    except KvcanaryError as error:
        code = _cut_short(f"Error: {error}", ExitCode.COULD_NOT_RUN, path)
        if watch:
            watch.could_not_run(str(error), code)
        return code
    code = show(result.record, str(result.path), output, reports)
    if on_leak:
        from kvcanary.report.hook import call_on_leak

        call_on_leak(on_leak, result.record, secret)
    if watch:
        watch.concluded(result.record, code)
    if result.record_error:
        click.echo(
            f"Error: the record {result.path} could not be written to its end: {result.record_error}. "
            "The verdict above stands; it cannot be shown again later.",
            err=True,
        )
    return code


def _cut_short(message: str, code: int, path: Path) -> int:
    from kvcanary.record.journal import PARTIAL

    say_failure(message, code)
    partial = path.with_name(path.name + PARTIAL)
    if partial.exists():
        click.echo(f"What was recorded until then: kvcanary report {partial}", err=True)
    return code


def show(record: "RunRecord", path: str, output: Output, reports: Reports) -> int:
    """Write a record's reports, print it, and return its exit code."""
    from kvcanary.cli import stop_printing

    code = write_reports(record, path, reports, exit_code(record))
    try:
        _print(record, path, output)
        sys.stdout.flush()
    except BrokenPipeError:
        stop_printing()
    return code


def write_reports(record: "RunRecord", path: str, reports: Reports, code: int) -> int:
    """The exit code that they leave of ``code``: what cannot be written is said, hides no failing verdict,
    keeps no other report from being written, and is never a pass.
    """
    from kvcanary.report.deliver import deliver
    from kvcanary.verdict.claims import ExitCode

    for report in reports:
        try:
            if report.file and report.file.resolve() == Path(path).resolve():
                raise ConfigError(f"The report {report.where} would replace the record itself.")
            deliver(report, record)
        except KvcanaryError as error:
            click.echo(f"Error: {error}", err=True)
            code = code or ExitCode.COULD_NOT_RUN
    return code


def _print(record: "RunRecord", path: str, output: Output) -> None:
    if output.format != TEXT:
        click.echo(format_named(output.format).render(record), nl=False)
        return
    from kvcanary.record.run import CAPACITY_SUITE
    from kvcanary.report.capacity import print_capacity
    from kvcanary.report.console import Output as Standard
    from kvcanary.report.summary import print_summary

    write = print_capacity if record.info.suite == CAPACITY_SUITE else print_summary
    write(Standard(), record, path)


def exit_code(record: "RunRecord") -> int:
    """What the record's verdict says; a run without one is inconclusive."""
    from kvcanary.verdict.claims import ExitCode

    return int(record.verdict.exit_code if record.verdict else ExitCode.INCONCLUSIVE)

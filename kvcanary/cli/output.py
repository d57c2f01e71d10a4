"""What commands print and which files they write, from a record."""

import sys
from collections.abc import Callable, Collection, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvcanary.errors import KvcanaryError

if TYPE_CHECKING:
    from kvcanary.record.run import RunRecord
    from kvcanary.run import Result


class OutputFormat(StrEnum):
    """What standard output holds."""

    TEXT = "text"
    JSON = "json"


REPORT_FORMATS = ("junit", "json")
Reports = tuple[tuple[str, Path], ...]


def _parsed(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> Reports:
    reports = []
    for value in values:
        kind, equals, name = value.partition("=")
        if kind not in REPORT_FORMATS or not equals or not name:
            raise click.BadParameter(
                f"`{value}` is not FORMAT=FILE with one of: {', '.join(REPORT_FORMATS)}."
            )
        path = Path(name)
        if not path.parent.is_dir() or path.is_dir():
            raise click.BadParameter(f"`{name}` cannot be a file: is its folder there?")
        reports.append((kind, path))
    return tuple(reports)


def reports_option(command: Callable[..., int]) -> Callable[..., int]:
    """``--report FORMAT=FILE``, repeatable."""
    return click.option(
        "--report",
        "reports",
        multiple=True,
        callback=_parsed,
        metavar="FORMAT=FILE",
        help=f"Write a report; may be given more than once. Formats: {', '.join(REPORT_FORMATS)}.",
    )(command)


def output_option(command: Callable[..., int]) -> Callable[..., int]:
    """``-o text|json``. The words are given one by one: a Choice of the enum itself takes its names."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([form.value for form in OutputFormat]),
        default=OutputFormat.TEXT.value,
        show_default=True,
        callback=lambda _ctx, _param, value: OutputFormat(value),
        help="What is printed on standard output.",
    )(command)


def concluded(
    run: "Coroutine[Any, Any, Result]",
    path: Path,
    output: OutputFormat,
    reports: Reports,
    on_leak: list[str] | None = None,
    secret: Collection[str] = (),
) -> int:
    """Run, write the reports, print the outcome, return the exit code.

    ``path``: where the record goes. A run that does not reach its end leaves a partial one there.
    ``secret``: environment variables that the hook does not get.
    """
    import asyncio

    from kvcanary.verdict.claims import ExitCode

    try:
        result = asyncio.run(run)
    except KeyboardInterrupt:
        return _cut_short("Interrupted.", ExitCode.INTERRUPTED, path)
    except KvcanaryError as error:
        return _cut_short(f"Error: {error}", ExitCode.COULD_NOT_RUN, path)
    code = show(result.record, str(result.path), output, reports)
    if on_leak:
        from kvcanary.report.hook import call_on_leak

        call_on_leak(on_leak, result.record, secret)
    if result.record_error:
        click.echo(
            f"Error: the record {result.path} could not be written to its end: {result.record_error}. "
            "The verdict above stands; it cannot be shown again later.",
            err=True,
        )
    return code


def _cut_short(message: str, code: int, path: Path) -> int:
    from kvcanary.record.journal import PARTIAL

    click.echo(message, err=True)
    partial = path.with_name(path.name + PARTIAL)
    if partial.exists():
        click.echo(f"What was recorded until then: kvcanary report {partial}", err=True)
    return code


def show(record: "RunRecord", path: str, output: OutputFormat, reports: Reports) -> int:
    """Write a record's reports, print it, and return its exit code.

    A report that cannot be written never hides a failing verdict, and is never a pass.
    """
    from kvcanary.cli import stop_printing
    from kvcanary.report.files import write_atomically
    from kvcanary.verdict.claims import ExitCode

    code = exit_code(record)
    for kind, file in reports:
        try:
            write_atomically(file, render(kind, record))
        except KvcanaryError as error:
            click.echo(f"Error: {error}", err=True)
            code = code or ExitCode.COULD_NOT_RUN
    try:
        _print(record, path, output)
        sys.stdout.flush()
    except BrokenPipeError:
        stop_printing()
    return code


def _print(record: "RunRecord", path: str, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        click.echo(record.model_dump_json(indent=2))
        return
    from kvcanary.record.run import CAPACITY_SUITE
    from kvcanary.report.capacity import print_capacity
    from kvcanary.report.console import Output
    from kvcanary.report.summary import print_summary

    write = print_capacity if record.info.suite == CAPACITY_SUITE else print_summary
    write(Output(), record, path)


def render(kind: str, record: "RunRecord") -> str:
    """A record in one of the report formats."""
    if kind == "json":
        return record.model_dump_json(indent=2) + "\n"
    from kvcanary.report import junit

    return junit.render(record)


def exit_code(record: "RunRecord") -> int:
    """What the record's verdict says; a run without one is inconclusive."""
    from kvcanary.verdict.claims import ExitCode

    return int(record.verdict.exit_code if record.verdict else ExitCode.INCONCLUSIVE)

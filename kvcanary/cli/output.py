"""What commands print and which files they write, from a record."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click

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


def deliver(result: "Result", output: OutputFormat, reports: Reports) -> int:
    """Write the reports, print the outcome, return the exit code."""
    show(result.record, str(result.path), output, reports)
    if result.record_error:
        click.echo(
            f"Error: the record {result.path} could not be written to its end: {result.record_error}. "
            "The verdict above stands; it cannot be shown again later.",
            err=True,
        )
    return exit_code(result.record)


def show(record: "RunRecord", path: str, output: OutputFormat, reports: Reports) -> None:
    """Print a record and write its reports."""
    from kvcanary.report.files import write_atomically

    if output is OutputFormat.JSON:
        click.echo(record.model_dump_json(indent=2))
    else:
        from rich.console import Console

        from kvcanary.report.summary import print_summary

        print_summary(Console(), record, path)
    for kind, file in reports:
        write_atomically(file, render(kind, record))


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

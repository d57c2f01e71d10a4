"""``kvcanary report``: a recorded run again, in any format."""

from pathlib import Path

import click

from kvcanary.cli.output import OutputFormat, Reports, output_option, reports_option, show


@click.command(short_help="Show a recorded run again.")
@click.argument("record", type=click.Path(path_type=Path))
@reports_option
@output_option
def report(record: Path, reports: Reports, output: OutputFormat) -> int:
    """Print RECORD, complete or partial, and write reports from it. Sends nothing.

    The exit code is that of the recorded verdict.
    """
    from kvcanary.record.journal import load

    loaded = load(record)
    return show(loaded, str(record), output, reports)

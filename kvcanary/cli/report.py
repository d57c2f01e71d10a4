"""``kvcanary report``: a recorded run again, in any format."""

from pathlib import Path

import click

from kvcanary.cli.output import Output, Reports, output_option, reports_option, show


@click.command(short_help="Show a recorded run again.")
@click.argument("record", type=click.Path(path_type=Path))
@reports_option
@output_option
def report(record: Path, reports: Reports, output: Output) -> int:
    """Print RECORD, complete or partial, and write reports from it. Sends nothing.

    The exit code is that of the recorded verdict. A run that was cut off is judged as far as it went, and
    never passes.
    """
    from kvcanary.record.journal import load
    from kvcanary.run import as_far_as_it_goes

    return show(as_far_as_it_goes(load(record)), str(record), output, reports)

"""``kvcanary scan``: this site's markers in stored text."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.errors import UsageError

if TYPE_CHECKING:
    from kvcanary.canary.sitekey import SiteKey
    from kvcanary.scan.known import Planted
    from kvcanary.scan.records import Fields
    from kvcanary.scan.result import ScanResult

MAX_JOBS = 64


@click.command(short_help="Find this site's markers in response logs.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--field",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Search only this field of each JSON line, like `choices[].message.content`; may be given more "
    "than once.",
)
@click.option("--id-field", metavar="PATH", help="Field of each JSON line that names its record.")
@click.option(
    "--record",
    "records",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Look for parts of the codes of this run, too; may be given more than once.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Remember here how far each file was scanned, and go on from there.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    metavar="N",
    help="Processes that search. Default: one a core.",
)
@click.option(
    "--context",
    type=click.IntRange(0, 400),
    default=0,
    show_default=True,
    metavar="N",
    help="Show so many bytes of text on both sides of each marker: other people's text.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed on standard output.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def scan(
    files: tuple[str, ...],
    paths: tuple[str, ...],
    id_field: str | None,
    records: tuple[Path, ...],
    state: Path | None,
    jobs: int | None,
    context: int,
    output: str,
    quiet: bool,
) -> int:
    """Find canary markers that reached the text in FILE...: files, folders, "patterns", or - for standard
    input. Text or JSON Lines, plain or compressed (gzip, zstd). Sends nothing.

    \b
    Exit codes:
      0  none found                      3  something is too weak to tell from chance
      1  found, whatever else happened   130  interrupted: what was found until then is shown
      2  something could not be read
    """
    from kvcanary.canary.sitekey import default_path, load_or_create
    from kvcanary.record.journal import load
    from kvcanary.report.progress import bytes_read
    from kvcanary.scan.known import planted
    from kvcanary.scan.ranges import Task
    from kvcanary.scan.result import judged
    from kvcanary.scan.scanner import scan as scan_all
    from kvcanary.scan.scanner import total_bytes
    from kvcanary.scan.sources import sources
    from kvcanary.scan.state import Places

    if not default_path().exists():
        raise UsageError(
            f"There is no site key at {default_path()}, so no marker can be told from other text. Set "
            "KVCANARY_SITE_KEY_FILE to the key that the canaries were sent with."
        )
    key = load_or_create()
    fields = _fields(paths, id_field)
    known = planted([load(path) for path in records], key) if records else None
    if known and not known.count:
        raise UsageError(
            "The records given hold no request: there is no code to look for parts of."
        )
    places = Places.load(state, key, _looked_for(key, paths, id_field, known)) if state else None
    found = list(sources(files))
    task = Task(key, known.index if known else None, fields, context)
    with bytes_read(total_bytes(found), quiet=quiet) as advance:
        seen = scan_all(task, found, places, jobs or _cores(), advance)
    result = judged(
        seen.tally,
        seen.files,
        now=time.time(),
        site_key=key.fingerprint(),
        fields=paths,
        planted_codes=known.count if known else 0,
        owners=known.owners if known else None,
        stopped="interrupted" if seen.interrupted else None,
    )
    _show(result, output)
    return int(result.exit_code)


def _fields(paths: tuple[str, ...], id_field: str | None) -> "Fields | None":
    if not paths and id_field is None:
        return None
    from kvcanary.scan.records import Fields
    from kvcanary.scan.records import Path as FieldPath

    return Fields(
        tuple(map(FieldPath.of, paths)), FieldPath.of(id_field) if id_field is not None else None
    )


def _looked_for(
    key: "SiteKey", paths: tuple[str, ...], id_field: str | None, known: "Planted | None"
) -> str:
    """What makes two scans the same search: who goes on from the state of one can rely on what it saw."""
    parts = [b"fields", *map(os.fsencode, paths), b"id", os.fsencode(id_field or "")]
    parts += [b"runs", *(run.to_bytes(4, "big") for run in (known.runs if known else ()))]
    return key.derive("scan search", *parts, size_bytes=8).hex()


def _cores() -> int:
    return min(
        MAX_JOBS,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


def _show(result: "ScanResult", output: str) -> None:
    from kvcanary.cli import stop_printing

    try:
        if output == "json":
            click.echo(result.model_dump_json(indent=2))
        else:
            from kvcanary.report.console import Output
            from kvcanary.report.scan import print_scan

            print_scan(Output(), result)
        sys.stdout.flush()
    except BrokenPipeError:
        stop_printing()

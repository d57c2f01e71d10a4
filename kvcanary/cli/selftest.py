"""``kvcanary selftest``: every fault of the lab has to be caught, and none of its innocents accused."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from kvcanary.cli.targets import MAX_CONTEXT
from kvcanary.errors import ConfigError

if TYPE_CHECKING:
    from kvcanary.selftest.case import Case, Terms
    from kvcanary.selftest.matrix import Result, Selftest

NO_SUITE = "none"
FORMATS = ("text", "json", "markdown")


@click.command(short_help="Does a suite catch every fault, and accuse no innocent?")
@click.option(
    "--suite", default="predeploy", show_default=True, metavar="ID|FILE", help="What to run."
)
@click.option(
    "--besides",
    default="soak",
    show_default=True,
    metavar="ID|FILE",
    help="Suite whose probes of its mechanism a fault gets by which no claim fails in the first one; look-alikes "
    "get two of them each. `none` for no second try.",
)
@click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="ID|FILE",
    help="Only this probe, without a second try; may be given more than once.",
)
@click.option(
    "--to-the-end",
    is_flag=True,
    help="Go on where a fault is proven, to see what else catches it; and run all probes of the second suite "
    "against look-alikes.",
)
@click.option(
    "--context",
    type=click.IntRange(512, MAX_CONTEXT),
    default=4_096,
    show_default=True,
    metavar="TOKENS",
    help="Context limit of the labs.",
)
@click.option(
    "--page",
    type=click.IntRange(1, 1_024),
    default=16,
    show_default=True,
    metavar="TOKENS",
    help="Page of their pools.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KEY[:RATE][@TOKENS]",
    help="Only this fault; may be given more than once (see `kvcanary lab list --faults`).",
)
@click.option(
    "--look-alike",
    "look_alikes",
    multiple=True,
    metavar="KEY",
    help="Only this look-alike; may be given more than once.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chances of labs and text.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Cases at the same time, each in a process of its own.  [default: two for each core]",
)
@click.option(
    "--deadline",
    "deadline_seconds",
    type=click.FloatRange(min=0.1, max=3_600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for one request.",
)
@click.option(
    "--case-seconds",
    type=click.FloatRange(min=1, max=86_400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time for one case; what was recorded until then is scored.",
)
@click.option(
    "--records",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep the record of each run there, for `kvcanary report`.",
)
@click.option("--explain", is_flag=True, help="For each case, every rule of every probe.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="What is printed on standard output.",
)
def selftest(
    suite: str,
    besides: str,
    probes: tuple[str, ...],
    to_the_end: bool,
    context: int,
    page: int,
    faults: tuple[str, ...],
    look_alikes: tuple[str, ...],
    seed: int,
    jobs: int | None,
    deadline_seconds: float,
    case_seconds: float,
    records: Path | None,
    explain: bool,
    quiet: bool,
    output: str,
) -> int:
    """Run a suite against labs that each have one fault, and against labs that only look as if.

    Prints which probe and which rule caught what, how soon, and which of them are the only ones to catch
    something. A fault that nothing catches, and a look-alike that is accused of a leak, a corruption, an
    outage or wrong accounts, is an error of kvcanary.

    \b
    Exit codes:
      0  all caught, none accused          2  could not run
      1  an error of kvcanary              130  interrupted: what was run is shown

    \b
    Examples:
      kvcanary selftest
      kvcanary selftest --fault tail-missing --look-alike quoting --explain
      kvcanary selftest --context 131072 --page 64 --jobs 2 -o json > selftest.json
    """
    import kvcanary
    from kvcanary.cli.selftesting import chosen
    from kvcanary.probing.grammar import load_probes, load_suite
    from kvcanary.report.selftest import case_progress
    from kvcanary.selftest.case import Terms
    from kvcanary.selftest.matrix import conclude
    from kvcanary.verdict.claims import ExitCode

    cases = chosen(faults, look_alikes)
    for name in dict.fromkeys((suite, *([] if besides == NO_SUITE else [besides]))):
        load_probes(
            (*load_suite(name).probes, *probes)
        )  # what cannot be read is told before anything is run
    terms = Terms(
        suite=suite,
        besides=None if besides == NO_SUITE else besides,
        probes=probes,
        to_the_end=to_the_end,
        context_tokens=context,
        page_tokens=page,
        seed=seed,
        deadline_seconds=deadline_seconds,
        case_seconds=case_seconds,
    )
    results: dict[str, Result] = {}
    interrupted = False
    with case_progress(len(cases), quiet=quiet) as tell, _folder(records) as folder:
        try:
            for result in _run_all(cases, terms, folder, jobs):
                results[result.case.key] = result
                tell(result)
        except KeyboardInterrupt:
            interrupted = True
    ordered = tuple(results[case.key] for case in cases if case.key in results)
    whole = conclude(kvcanary.__version__, terms, ordered, complete=not interrupted)
    _print(whole, output, explain=explain)
    if interrupted:
        click.echo("Interrupted.", err=True)
        return ExitCode.INTERRUPTED
    return ExitCode.VIOLATION if whole.errors else ExitCode.PASS


@contextmanager
def _folder(records: Path | None) -> Iterator[Path]:
    """Where records go: for good, or for as long as the block lasts. Raises ConfigError."""
    if records is None:
        with TemporaryDirectory(prefix="kvcanary-selftest-") as name:
            yield Path(name)
        return
    try:
        records.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The folder {records} cannot be made: {error.strerror}.") from None
    yield records


def _run_all(
    cases: "tuple[Case, ...]", terms: "Terms", folder: Path, jobs: int | None
) -> "Iterator[Result]":
    """Each result as it comes. Whatever ends the iteration ends the processes."""
    import multiprocessing
    import os
    from concurrent.futures import ProcessPoolExecutor, as_completed

    from kvcanary.cli.selftesting import run_case

    context = multiprocessing.get_context("spawn")
    workers = min(jobs or 2 * (os.cpu_count() or 1), len(cases))
    pool = ProcessPoolExecutor(workers, context, initializer=_deaf)
    try:
        yield from (
            future.result()
            for future in as_completed(
                [pool.submit(run_case, case, terms, folder) for case in cases]
            )
        )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
            child.join()


def _deaf() -> None:
    """Ctrl-C is for the process that was started: it ends the others."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _print(whole: "Selftest", output: str, *, explain: bool) -> None:
    from kvcanary.report import selftest as report
    from kvcanary.report.console import Output

    if output == "json":
        click.echo(whole.model_dump_json(indent=2))
    elif output == "markdown":
        click.echo(report.markdown(whole))
    else:
        report.print_selftest(Output(), whole, explain=explain)

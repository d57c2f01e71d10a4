"""The command line: one module per command, imported when the command is run."""

import errno
import io
import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

import kvcanary
from kvcanary.cli.exit_style import say_failure, say_to_nagios, styled
from kvcanary.errors import KvcanaryError

COMMANDS = {
    "init": "Write a deployment file from what a front door tells.",
    "check": "Does every request attend to its own pages? Ask a URL, a deployment file or lab:NAME.",
    "capacity": "Can every worker hold the longest request that is promised? No prompt is sent.",
    "plan": "What a run would send, what that costs, and what it leaves out.",
    "probes": "What can be sent, and why.",
    "suites": "Which probes run together, what they require and may spend.",
    "lab": "A deployment in a box that leaks for the real reason: serve it, list the scenarios.",
    "selftest": "Does a suite catch every fault of the lab, and accuse none of its innocents?",
    "replay": "Send the requests behind a finding again, word for word and with fresh text.",
    "scan": "Did a canary's markers reach anybody else? Find them in response logs.",
    "advisories": "Known faults of engines: which versions, and what they depend on.",
    "explain": "What a finding, a claim, a probe or an exit code means, and what to do.",
    "report": "Show a recorded run again, in any format.",
    "completion": "Lets bash, zsh or fish complete commands, options and names.",
    "metrics": "A Grafana dashboard and Prometheus alerts for the metrics of runs.",
}


class LazyGroup(click.Group):
    """Knows its commands by name and one line, and imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"kvcanary.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - our own module
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """``--help`` and ``--version`` print while arguments are parsed."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            from kvcanary.verdict.claims import ExitCode

            stop_printing()
            raise click.exceptions.Exit(ExitCode.COULD_NOT_RUN) from None

    def invoke(self, ctx: click.Context) -> Any:
        """A reader that went away (``| head -1``) is no verdict: click itself would exit 1."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            from kvcanary.verdict.claims import ExitCode

            stop_printing()
            return ExitCode.COULD_NOT_RUN
        return code

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kvcanary.__version__, prog_name="kvcanary")
def cli() -> None:
    """Shows whether a prefill/decode deployment keeps its tenants' KV pages apart.

    Start with `kvcanary check lab:glm-5.3`, a deployment in a box that leaks as one did in 2026.

    Exit codes: 0 pass, 1 violation, 2 could not run, 3 inconclusive, 130 interrupted.
    """


def stop_printing() -> None:
    """Standard output has no reader any more: what is still to come goes nowhere, without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point: every failure is a message and an exit code, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 gets \\u escapes
            stream.reconfigure(errors="backslashreplace")
    # SIGTERM (a job that is cancelled) leaves as much as Ctrl-C does, also where a shell has that ignored
    # because it started us in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        code = cli.main(standalone_mode=False)
    except Exception as error:
        code = _failed(error)
    sys.exit(styled(code if isinstance(code, int) else 0))


def _failed(error: Exception) -> int:
    """Say why nothing could be run, and the exit code for it."""
    from kvcanary.verdict.claims import ExitCode

    if isinstance(error, click.exceptions.Abort):
        say_failure("Interrupted.", ExitCode.INTERRUPTED)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        say_to_nagios(error.format_message(), ExitCode.COULD_NOT_RUN)
    elif isinstance(error, OSError) and error.errno in _FULL:
        click.echo(f"Error: what there is to say could not be written: {error.strerror}.", err=True)
    else:
        told = str(error) if isinstance(error, KvcanaryError) else _place(error)
        say_failure(f"Error: {told}", ExitCode.COULD_NOT_RUN)
    return ExitCode.COULD_NOT_RUN


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No room for what is written to standard output."""


def _place(error: BaseException) -> str:
    """A fault of our own: where it happened. Its message may hold a server's text and is not shown."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace, place = error.__traceback__, "?"
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == "kvcanary":
            place = f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (
        f"kvcanary itself failed ({type(error).__name__} in {place}), so nothing is said about the "
        "deployment. Please report this with the command that was run."
    )

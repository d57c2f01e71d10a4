"""The command line: one module per command, imported when the command is run."""

import sys
from importlib import import_module

import click

import kvcanary
from kvcanary.errors import KvcanaryError

COMMANDS = {
    "check": "Does every request attend to its own pages? Ask a deployment, or lab:NAME.",
    "lab": "A deployment in a box that leaks for the real reason: serve it, list the scenarios.",
    "replay": "Send the requests behind a finding again, word for word and with fresh text.",
    "report": "Show a recorded run again, in any format.",
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


def main() -> None:
    """Entry point: every failure is a message and an exit code, never a traceback."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except KvcanaryError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)

"""Whose exit codes the command line ends with: kvcanary's own, or Nagios's."""

import sys
from collections.abc import Sequence
from enum import StrEnum

import click


class ExitStyle(StrEnum):
    """``--exit-style``."""

    OWN = "own"
    NAGIOS = "nagios"


OPTION = "--exit-style"


def asked_for(words: Sequence[str]) -> ExitStyle:
    """The style that a command line asks for, also one with mistakes: Nagios wants its own code for those."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    nagios = any(f"{a}={b}".startswith(f"{OPTION}={ExitStyle.NAGIOS}") for a, b in pairs)
    return ExitStyle.NAGIOS if nagios else ExitStyle.OWN


def styled(code: int) -> int:
    """kvcanary's own code as this process is asked to end."""
    if asked_for(sys.argv[1:]) is ExitStyle.OWN:
        return code
    from kvcanary.report import nagios

    return nagios.code(code)


def say_failure(text: str, code: int) -> None:
    """Why nothing was judged, on standard error."""
    click.echo(text, err=True)
    say_to_nagios(text.removeprefix("Error: "), code)


def say_to_nagios(text: str, code: int) -> None:
    """The same on standard output, where Nagios asks: it reads no other."""
    if asked_for(sys.argv[1:]) is ExitStyle.NAGIOS:
        from kvcanary.report import nagios
        from kvcanary.verdict.claims import ExitCode

        click.echo(nagios.line(ExitCode(code), text), nl=False)

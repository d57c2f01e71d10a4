"""The hook for a leak: a command of the operator's, told what was found without any server text."""

import json
import shlex
import shutil
import subprocess
import sys

from kvcanary.errors import UsageError
from kvcanary.record.run import RunRecord
from kvcanary.verdict.findings import Severity

HOOK_SECONDS = 60.0
STANDARD_ERROR = 2


def words_of(command: str) -> list[str]:
    """The hook as words. Raises UsageError when it cannot be run: before the run, not at its leak."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--on-leak `{command}`: {error}.") from None
    if not words or not shutil.which(words[0]):
        raise UsageError(f"--on-leak `{command}`: there is no such command.")
    return words


def call_on_leak(words: list[str], record: RunRecord) -> None:
    """Run a command (words, no shell) with JSON on its standard input if the record holds a leak.

    What it prints goes to standard error. Its failure is said there, too, and changes no verdict.
    """
    leaks = [f for f in record.findings if f.severity is Severity.LEAK]
    if not leaks:
        return
    told = json.dumps(
        {
            "run": f"{record.info.run:07x}",
            "target": record.info.target,
            "model": record.info.model,
            "exit_code": int(record.verdict.exit_code) if record.verdict else None,
            "headline": record.verdict.headline if record.verdict else None,
            "findings": [f.model_dump(mode="json") for f in leaks],
        }
    )
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command
            words,
            input=told,
            stdout=STANDARD_ERROR,
            text=True,
            encoding="utf-8",
            timeout=HOOK_SECONDS,
            check=False,
        )
        failure = f"it ended with {done.returncode}" if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        sys.stderr.write(f"The --on-leak command failed: {failure}.\n")

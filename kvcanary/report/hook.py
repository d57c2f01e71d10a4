"""The hook for a leak: a command of the operator's, told what was found without any server text."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress

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
        raise UsageError(f"--on-leak: the command cannot be read: {error}.") from None
    if not words or not shutil.which(words[0]):
        # only its name: what follows may hold a token
        raise UsageError(f"--on-leak `{' '.join(words[:1])}`: there is no such command.")
    return words


def call_on_leak(words: list[str], record: RunRecord, secret: Collection[str] = ()) -> None:
    """Run a command (words, no shell) with JSON on its standard input if the record holds a leak.

    What it prints goes to standard error. Its failure is said there, too, and changes no verdict: neither
    does an interruption, which ends it and whatever it started.

    ``secret``: environment variables that it does not get.
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
    failure = _run(words, told, {k: v for k, v in os.environ.items() if k not in secret})
    if failure:
        sys.stderr.write(f"The --on-leak command failed: {failure}.\n")


def _run(words: list[str], told: str, environment: Mapping[str, str]) -> str | None:
    """What went wrong, without the command's words: they may hold a token."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own command
            words,
            stdin=subprocess.PIPE,
            stdout=STANDARD_ERROR,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,  # so that all it started can be ended with it
        )
    except OSError as error:
        return f"it could not be started: {error.strerror}"
    try:
        process.communicate(told, timeout=HOOK_SECONDS)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"it did not end within {HOOK_SECONDS:g} seconds, and was killed"
    except KeyboardInterrupt:
        _end(process)
        return "it was interrupted"
    return f"it ended with {process.returncode}" if process.returncode else None


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()

"""The hook for a leak: a command of the operator's, told what was found without any server text."""

import json
import shlex
import subprocess
import sys

from kvcanary.record.run import RunRecord
from kvcanary.verdict.findings import Severity

HOOK_SECONDS = 60.0


def call_on_leak(command: str, record: RunRecord) -> None:
    """Run ``command`` (words, no shell) with JSON on its standard input if the record holds a leak.

    The hook's own failure is said on standard error and changes no verdict.
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
            shlex.split(command), input=told, text=True, timeout=HOOK_SECONDS, check=False
        )
        failure = f"it ended with {done.returncode}" if done.returncode else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        sys.stderr.write(f"The --on-leak command failed: {failure}.\n")

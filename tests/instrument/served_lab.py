"""A lab that outlives the commands that are run against it: ``kvcanary lab serve`` as a process."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import COMMAND, environment


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[str]:
    """The base URL of its front door."""
    process = subprocess.Popen(
        [*COMMAND, "lab", "serve", "--announce", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(folder),
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdin
        url = json.loads(process.stdout.readline())["url"]
        yield f"{url}/v1"
        process.stdin.close()

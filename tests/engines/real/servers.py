"""Real servers as processes of their own: started, awaited, and ended with all their children."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

READY_SECONDS = 420.0
"""Longest wait for an engine to come up, on a machine that has other things to do. Two vLLMs take up to 100 s."""
END_SECONDS = 20.0
"""After which a server that was asked to end is killed."""
LOG_TAIL = 3_000
"""Characters of a log that a failure shows."""


class ServerError(Exception):
    """A server did not come up. Says what its log ended with, and where the log is."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def served(
    command: Sequence[str | Path], url: str, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """The server that `command` starts, once ``/health`` below `url` answers 200. Its output goes to `log`."""
    with starting(command, log, environment) as process:
        await_health(process, url, log)
        yield


@contextmanager
def starting(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that may not be ready yet, in a session of its own: its children end with it."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process)


def await_health(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Raises ServerError when it ends, or is not healthy in time."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ServerError(f"{url} ended with {process.returncode}; {_tail(log)}")
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise ServerError(f"{url} was not healthy after {READY_SECONDS:.0f} s; {_tail(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(END_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _tail(log: Path) -> str:
    return f"the end of {log}:\n{log.read_text(errors='replace')[-LOG_TAIL:]}"

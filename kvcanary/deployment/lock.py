"""Two runs against one deployment would read each other's prompts: on one host they exclude each other.

Runs from elsewhere cannot be kept off, but are recognised: markers of the same site tell their run.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from kvcanary.errors import ConfigError, UsageError


@contextmanager
def only_run(base_url: str, folder: Path) -> Iterator[None]:
    """Hold the deployment for this run. Raises UsageError when another run has it."""
    name = hashlib.sha256(_place(base_url).encode()).hexdigest()[:16]
    path = folder / f"{name}.lock"
    lock = FileLock(path, timeout=0, mode=0o600)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"Another kvcanary run on this host is testing {base_url}. Two at once would find each "
            f"other's markers. Wait for it to end (lock: {path})."
        ) from None
    except OSError as error:
        raise ConfigError(f"The lock {path} cannot be made: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()


def _place(base_url: str) -> str:
    """The same for every spelling of one front door."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.hostname}:{port}{path}"

"""What changes in the middle of a deployment's life, after so many requests."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol


class Operated(Protocol):
    """A deployment as its operators see it."""

    def restart_decode(self) -> None:
        """The first decode worker's process ends and a newer one begins."""
        ...

    def change_version(self) -> None:
        """All workers report the next version from now on."""
        ...


@dataclass(frozen=True)
class RestartAfter:
    """After ``requests`` requests the next one meets a decode worker that was just restarted with
    the next version: its pools are virgin, and what was open there has failed with 503."""

    requests: int

    def happen(self, deployment: Operated) -> None:
        """Restart it."""
        deployment.restart_decode()


@dataclass(frozen=True)
class VersionChangeAfter:
    """After ``requests`` requests all workers report the next version; nothing else changes."""

    requests: int

    def happen(self, deployment: Operated) -> None:
        """Change it."""
        deployment.change_version()


Change = RestartAfter | VersionChangeAfter


def next_version(version: str) -> str:
    """``0.5.24`` for ``0.5.23``."""
    head, _, last = version.rpartition(".")
    return f"{head}.{int(last) + 1}"


def fingerprint(model_name: str, version: str) -> str:
    """What ``system_fingerprint`` says: the same for the same model and engine."""
    return "fp_" + blake2b(f"{model_name}/{version}".encode(), digest_size=5).hexdigest()

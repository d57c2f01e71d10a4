"""What is remembered from one run to the next of its kind: whose turn it is, and how the last one ended."""

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from kvcanary.errors import ConfigError
from kvcanary.record.base import Recorded
from kvcanary.record.notice import Notice, Outcome
from kvcanary.record.run import RunRecord
from kvcanary.report.files import write_atomically
from kvcanary.verdict.findings import Severity


class Memory(Recorded):
    """``turns``: runs that came to their end; ``told``: the outcome that was told last, or needed no telling,
    with the rules of its leaks and corruptions; ``undelivered``: notices that nobody took yet."""

    schema_version: int = 1
    turns: int = 0
    told: Outcome | None = None
    severe: tuple[str, ...] = ()
    undelivered: tuple[Notice, ...] = ()


class Diary:
    """The memory of one kind of run: a small file in the user's state folder, named by what is run on what."""

    def __init__(self, folder: Path, target: str, *what: str) -> None:
        name = hashlib.sha256(json.dumps([target, *what]).encode()).hexdigest()[:16]
        self.path = folder / "memory" / f"{name}.json"

    def read(self) -> Memory:
        """What was written last. A file that is not there, or is none of ours, is a first run."""
        try:
            return Memory.model_validate_json(self.path.read_bytes())
        except (OSError, ValidationError):
            return Memory()

    def write(self, memory: Memory) -> None:
        """Raises ConfigError when it cannot be written."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"The folder {self.path.parent} cannot be made: {error.strerror}."
            ) from None
        write_atomically(self.path, memory.model_dump_json() + "\n", 0o600)


def severe_of(record: RunRecord) -> tuple[str, ...]:
    """Rules of the leaks and corruptions that count."""
    worst = (Severity.LEAK, Severity.CORRUPTION)
    found = {f.rule for f in record.findings if f.severity in worst and not f.waived}
    return tuple(sorted(found))


def outcome_of(record: RunRecord) -> Outcome:
    """A record without a verdict is inconclusive, as its exit code is."""
    return Outcome(record.verdict.status.value) if record.verdict else Outcome.INCONCLUSIVE

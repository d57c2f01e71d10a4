"""The runs of one pytest session: `kvcanary check` as a process of its own, one at a time.

A process of its own keeps prompts, answers and keys out of pytest's memory, frames and captured output.
"""

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcanary.errors import KvcanaryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcanary.record.run import RunRecord

END_SECONDS = 10.0
"""How long a run that is told to end may take to write down what it has."""
NO_TARGET = (
    "no target was given: say what to test with --kvcanary-target URL|FILE|lab:NAME, or with `kvcanary_target` "
    "in pytest's configuration. To leave suites of kvcanary out: --ignore-glob='*.kvcanary.yaml'."
)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left: a judged record, or why there is none."""

    record: Path | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Session:
    """``id`` is the same in all workers of pytest-xdist. ``target`` and ``options`` are the session's own."""

    id: str
    target: str | None = field(repr=False)  # a URL may hold a password
    options: tuple[str, ...] = field(repr=False)
    lenient: bool
    """What could not be measured is an expected failure."""

    @classmethod
    def of(cls, config: Any, id_: str | None) -> "Session":
        """From the command line, else from pytest's configuration file."""
        given = config.getoption("kvcanary_args")
        said = config.getoption("kvcanary_inconclusive") or config.getini("kvcanary_inconclusive")
        return cls(
            id_ or secrets.token_hex(6),
            config.getoption("kvcanary_target") or config.getini("kvcanary_target") or None,
            tuple(config.getini("kvcanary_args") if given is None else shlex.split(given)),
            said == "xfail",
        )

    def run_once(self, name: str, words: Sequence[str]) -> Ran:
        """The run of this name: made by the first who asks, in whichever process, and told to the others."""
        with self._alone() as folder:
            note = folder / f"{name}.json"
            if note.exists():
                known = json.loads(note.read_text())
                return Ran(Path(known["record"]) if known["record"] else None, known["error"])
            ran = self._run(None, words, name)
            record = None if ran.record is None else str(ran.record)
            note.write_text(json.dumps({"record": record, "error": ran.error}))
            return ran

    def record_of_a_run(self, target: str | None, words: Sequence[str]) -> "RunRecord":
        """A run of its own. Raises KvcanaryError when it left no judged record."""
        from kvcanary.record.journal import load

        __tracebackhide__ = True
        with self._alone():
            ran = self._run(target, words, f"fixture-{secrets.token_hex(4)}")
        if ran.record is None:
            raise KvcanaryError(ran.error)
        return load(ran.record)

    def end(self) -> None:
        """Nobody asks any more."""
        from kvcanary.places import state_folder

        shutil.rmtree(state_folder() / "pytest" / self.id, ignore_errors=True)

    @contextmanager
    def _alone(self) -> "Iterator[Path]":
        """The session's folder, while nobody else of the session runs anything."""
        from filelock import FileLock

        from kvcanary.places import state_folder

        folder = state_folder() / "pytest" / self.id
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock(folder / "lock", mode=0o600)
            lock.acquire()
        except OSError as error:
            raise KvcanaryError(f"The folder {folder} cannot be used: {error.strerror}.") from None
        try:
            yield folder
        finally:
            lock.release()

    def _run(self, target: str | None, words: Sequence[str], name: str) -> Ran:
        from kvcanary.places import state_folder

        target = target or self.target
        if not target:
            return Ran(None, NO_TARGET)
        record = (state_folder() / "runs" / f"pytest-{self.id}-{name}.jsonl").absolute()
        ended, said = _check(
            (*self.options, *words, "--record", str(record), "--quiet", "--", target)
        )
        return _judged(record, ended, said)


def _judged(record: Path, ended: int, said: str) -> Ran:
    from kvcanary.record.journal import load

    try:
        verdict = load(record).verdict if record.exists() else None
    except KvcanaryError as error:
        return Ran(None, str(error))
    if verdict is not None and verdict.exit_code == ended:
        return Ran(record, None)
    complaint = said.rpartition("Error: ")[2].strip() or f"`kvcanary check` ended with {ended}."
    if record.exists():
        complaint += f"\nWhat was recorded: kvcanary report {record}"
    return Ran(None, complaint)


def _check(words: Sequence[str]) -> tuple[int, str]:
    """Exit code and standard error of `kvcanary check`. What interrupts pytest ends it, too."""
    process = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-P", "-m", "kvcanary", "check", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        _, said = process.communicate()
    except BaseException:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    return process.returncode, said.decode("utf-8", "replace")

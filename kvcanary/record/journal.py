"""The journal: a run record written line by line as things happen, so that a killed run leaves one.

Each line is ``{"kind": ..., "value": ...}``; the file is ``NAME.partial`` (mode 0600) until the run is
complete and is then renamed. ``load`` reads both.
"""

import json
import math
import os
import re
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from kvcanary.errors import ConfigError
from kvcanary.record.base import Recorded
from kvcanary.record.run import SCHEMA_VERSION, RunRecord

PARTIAL = ".partial"
MAX_DIGITS = 18
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LISTS = {
    "exchange": "exchanges",
    "finding": "findings",
    "simulation": "simulations",
    "series": "series",
    "window": "windows",
}


class Journal:
    """Appends recorded values. A full disk does not stop the run: it is noted and said at the end."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the file cannot be made."""
        self.path = path
        self.error: str | None = None
        self._values: dict[str, Recorded | str] = {}
        self._lists: dict[str, list[Recorded]] = {name: [] for name in _LISTS.values()}
        self._partial = path.with_name(path.name + PARTIAL)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.is_dir() or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
                raise ConfigError(f"The record {path} would replace something that is not a file.")
            descriptor = os.open(
                self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"The record {path} cannot be written: {error.strerror}. Name another with --record."
            ) from None
        os.fchmod(descriptor, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def append(self, kind: str, value: Recorded | str) -> None:
        """Remember a value and write its line through to the disk's cache."""
        if kind in _LISTS and not isinstance(value, str):
            self._lists[_LISTS[kind]].append(value)
        else:
            self._values[kind] = value
        if self.error:
            return
        data = value if isinstance(value, str) else value.model_dump(mode="json")
        try:
            self._file.write(json.dumps({"kind": kind, "value": data}) + "\n")
            self._file.flush()
        except OSError as error:
            self.error = error.strerror or "write failed"

    @property
    def record(self) -> RunRecord:
        """All that was appended so far."""
        return RunRecord.model_validate({**self._values, **self._lists})

    def complete(self) -> None:
        """The run has reached its end: give the file its name."""
        try:
            if not self.error:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._partial.replace(self.path)
        except OSError as error:
            self.error = error.strerror or "rename failed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
        except OSError as failure:
            self.error = self.error or failure.strerror or "write failed"

    @property
    def written_path(self) -> Path:
        """Where the lines are now."""
        return self.path if self.path.exists() and not self._partial.exists() else self._partial


def load(path: Path) -> RunRecord:
    """Read a record, complete or partial; a last line cut short by a kill is left out.

    Raises ConfigError when it is not one.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"The record {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a run record (not text).") from None
    parts: dict[str, object] = {}
    lists: dict[str, list[object]] = {name: [] for name in _LISTS.values()}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
            kind, value = entry["kind"], entry["value"]
            if _SURROGATE.search(line):  # half a character alone: nothing could be printed of it
                json.dumps(entry, ensure_ascii=False).encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            if number == len(lines) > 1:
                break
            raise ConfigError(f"{path}:{number}: not a line of a run record.") from None
        if isinstance(kind, str) and kind in _LISTS:
            lists[_LISTS[kind]].append(value)
        else:
            parts[str(kind)] = value
    version = _version(parts.get("info"))
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} is a run record of schema version {version}; this kvcanary reads {SCHEMA_VERSION}."
            if version is not None
            else f"{path} is not a run record: it does not begin with the run."
        )
    try:
        return RunRecord.model_validate({**parts, **lists})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path} is not a valid run record: {place}: {first['msg']}.") from None


def _whole(digits: str) -> int:
    """No figure of ours is any larger. Raises ValueError."""
    if len(digits) > MAX_DIGITS:
        raise ValueError("too large")
    return int(digits)


def _finite(figure: str) -> float:
    """Raises ValueError for what no journal writes: Infinity and NaN."""
    value = float(figure)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _version(info: object) -> object:
    return info.get("schema_version") if isinstance(info, dict) else None

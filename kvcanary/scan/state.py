"""How far each file was scanned, kept between scans: logs grow, are rotated and cut.

A file is known by device and inode, so a rotated log is found again under its new name, and what now has
its old one is new. A file that was cut and written anew is told by its size and by 16 bits of a keyed hash of
the last bytes that were read: too few to confirm a guess of what they were. What was seen by a scan that did
not reach its end is kept too, so that the next one tells all of it.
"""

import hmac
import io
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from kvcanary.canary.sitekey import SiteKey
from kvcanary.errors import ConfigError, UsageError
from kvcanary.record.base import Recorded
from kvcanary.report.files import write_atomically
from kvcanary.scan.sighting import Sighting
from kvcanary.scan.sources import Source
from kvcanary.scan.tally import Counts, Tally

STATE_VERSION = 1
MAX_STATE_BYTES = 64 << 20
MAX_FILES = 100_000
"""Files that are remembered, those of the latest scans."""
_CHECKED_BYTES = 64


class Scanned(Recorded):
    """How far one file was scanned."""

    device: int
    inode: int
    stored_bytes: int
    """Bytes of the file, as it is stored."""
    text_bytes: int
    """Bytes of its text: the same where it is not compressed."""
    check: str
    """16 keyed bits of the bytes before ``stored_bytes``."""


class State(Recorded):
    """What the next scan goes on from."""

    version: int = STATE_VERSION
    looked_for: str
    """Fingerprint of site key, fields and records: another search begins anew."""
    files: tuple[Scanned, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    counts: Counts = Counts()

    @property
    def pending(self) -> Tally:
        """Seen by a scan that did not reach its end."""
        return Tally(self.sightings, self.counts)


class Places:
    """The state while a scan goes on."""

    def __init__(self, path: Path, key: SiteKey, looked_for: str, state: State) -> None:
        self._path = path
        self._key = key
        self._looked_for = looked_for
        self._files = {(f.device, f.inode): f for f in state.files}
        self.pending = state.pending

    @classmethod
    def load(cls, path: Path, key: SiteKey, looked_for: str) -> "Places":
        """Raises ConfigError when the file is no state, UsageError when it is another search's."""
        state = _load(path)
        if state is None:
            state = State(looked_for=looked_for)
        elif state.looked_for != looked_for:
            raise UsageError(
                f"{path} belongs to a scan with another site key, other fields or other records. "
                "Name another file with --state, or remove this one to scan everything anew."
            )
        return cls(path, key, looked_for, state)

    def of(self, source: Source) -> Scanned | None:
        """How far a file was scanned; None when it is new, or was cut and written anew."""
        known = self._files.get((source.device, source.inode))
        if known is None or source.path is None or source.size < known.stored_bytes:
            return None
        same = hmac.compare_digest(self._check(source.path, known.stored_bytes), known.check)
        return known if same else None

    def is_known(self, source: Source) -> bool:
        """Whether a file with this inode was scanned before."""
        return (source.device, source.inode) in self._files

    def reached(self, source: Source, stored_bytes: int, text_bytes: int) -> None:
        """A file was scanned so far. Raises OSError."""
        assert source.path is not None  # noqa: S101 - streams have no place
        place = Scanned(
            device=source.device,
            inode=source.inode,
            stored_bytes=stored_bytes,
            text_bytes=text_bytes,
            check=self._check(source.path, stored_bytes),
        )
        self._files.pop((source.device, source.inode), None)
        self._files[source.device, source.inode] = place

    def save(self, pending: Tally) -> None:
        """``pending``: what was seen and is still to be told. Raises ConfigError."""
        files: Iterable[Scanned] = list(self._files.values())[-MAX_FILES:]
        state = State(
            looked_for=self._looked_for,
            files=tuple(files),
            sightings=pending.sightings,
            counts=pending.counts,
        )
        write_atomically(self._path, state.model_dump_json() + "\n", 0o600)

    def _check(self, path: Path, until: int) -> str:
        """Raises OSError."""
        with io.FileIO(path, "rb") as file:
            begin = max(0, until - _CHECKED_BYTES)
            file.seek(begin)
            last = file.read(until - begin)
        return self._key.derive("scan state", last, size_bytes=2).hex()


def _load(path: Path) -> State | None:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_STATE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"The state {path} cannot be read: {error.strerror}.") from None
    try:
        state = State.model_validate_json(content[:MAX_STATE_BYTES])
    except ValidationError:
        raise ConfigError(f"{path} is not the state of a scan. Name another file.") from None
    if state.version != STATE_VERSION:
        raise ConfigError(f"{path} is the state of another version of kvcanary. Name another file.")
    return state

"""What is scanned: files, folders, patterns and streams, decompressed on the way."""

import glob
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from kvcanary.report.printable import escaped

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STDIN = "-"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAGIC_BYTES = 4
UNREADABLE = (OSError, EOFError, zlib.error, zstd.ZstdError)
"""What reading raises: a file that went away, a compressed one that is cut off or damaged."""


class Form(StrEnum):
    """How the text is stored."""

    PLAIN = "plain"
    GZIP = "gzip"
    ZSTD = "zstd"
    STREAM = "stream"
    """Standard input, a pipe or a device: read once, to its end; compressed or not."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file or stream."""

    name: str
    """As it is printed: what is no text in it is escaped."""
    path: Path | None
    """None for standard input."""
    form: Form
    device: int = 0
    inode: int = 0
    size: int = 0
    """Bytes when it was found; what is written to it later is left for another scan."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read, and why."""

    name: str
    why: str


def sources(arguments: Iterable[str]) -> Iterator[Source | Unread]:
    """Each file once, in the order of the arguments; within a folder by name."""
    seen: set[tuple[int, int]] = set()
    for argument in arguments:
        for found in _named(argument):
            if isinstance(found, Source) and found.path is not None:
                if (found.device, found.inode) in seen:
                    continue
                seen.add((found.device, found.inode))
            yield found


def printed(path: str | Path) -> str:
    """A name that can be shown: bytes that are no text and what a terminal would obey are escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return escaped(text)


def why(error: Exception) -> str:
    """Why a source could not be read, in words of our own or the system's."""
    if isinstance(error, (EOFError, zlib.error, zstd.ZstdError, gzip.BadGzipFile)):
        cut = isinstance(error, EOFError)
        return "the compressed data ends too early" if cut else "the compressed data is damaged"
    return (error.strerror if isinstance(error, OSError) else None) or "cannot be read"


def _named(argument: str) -> Iterator[Source | Unread]:
    if argument == STDIN:
        yield Source("standard input", None, Form.STREAM)
        return
    path = Path(argument)
    if not os.path.lexists(path) and glob.has_magic(argument):
        matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207 - absolute patterns, too
        if not matches:
            yield Unread(printed(argument), "nothing has such a name")
        for match in matches:
            yield from _one(Path(match), named=False)
        return
    yield from _one(path, named=True)


def _one(path: Path, *, named: bool) -> Iterator[Source | Unread]:
    """A file, or all the files in a folder. Pipes and devices only where they are named."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            yield from _folder(path)
        elif stat.S_ISREG(found.st_mode):
            with path.open("rb") as file:
                form = _form(file.read(_MAGIC_BYTES))
            yield Source(printed(path), path, form, found.st_dev, found.st_ino, found.st_size)
        elif named:
            yield Source(printed(path), path, Form.STREAM, found.st_dev, found.st_ino)
    except OSError as error:
        yield Unread(printed(path), why(error))


def _folder(folder: Path) -> Iterator[Source | Unread]:
    failed: list[OSError] = []
    count = 0
    for place, folders, files in os.walk(folder, onerror=failed.append):
        folders.sort()
        for name in sorted(files):
            for found in _one(Path(place, name), named=False):
                count += 1
                yield found
    for error in failed:
        yield Unread(printed(error.filename), why(error))
    if not count and not failed:
        yield Unread(printed(folder), "there is no file in it")


def _form(head: bytes) -> Form:
    return next(
        (Form(form) for magic, form in _MAGIC.items() if head.startswith(magic)), Form.PLAIN
    )


class Readable(Protocol):
    """What a source is read from."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that is being read. ``text`` is decompressed where it is not plain."""

    file: io.FileIO
    text: Readable
    stream: "_Stream | None" = None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it, rather than its own end."""
        return self.stream is not None and self.stream.interrupted


@contextmanager
def opened(source: Source) -> Iterator[Opened]:
    """Raises OSError."""
    place = sys.stdin.fileno() if source.path is None else source.path
    with io.FileIO(place, "rb", closefd=source.path is not None) as file:
        if source.form is Form.PLAIN:
            yield Opened(file, file)
            return
        stream = _Stream(file)
        form = _form(stream.head) if source.form is Form.STREAM else source.form
        if form is Form.GZIP:
            yield Opened(file, gzip.GzipFile(fileobj=stream, mode="rb"), stream)
        elif form is Form.ZSTD:
            yield Opened(file, zstd.ZstdFile(stream, "rb"), stream)
        else:
            yield Opened(file, stream, stream)


class _Stream(io.RawIOBase):
    """A file that cannot go back, of which the first bytes are known.

    Ctrl-C while it waits ends it, so that what was read until then is searched; ``interrupted`` says so.
    """

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self.interrupted = False
        self.head = b""
        while len(self.head) < _MAGIC_BYTES and (more := file.read(_MAGIC_BYTES - len(self.head))):
            self.head += more
        self._pending = self.head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        if self._pending:
            piece, self._pending = self._pending[: len(buffer)], self._pending[len(buffer) :]
            buffer[: len(piece)] = piece
            return len(piece)
        try:
            return self._file.readinto(buffer) or 0
        except KeyboardInterrupt:
            self.interrupted = True
            return 0

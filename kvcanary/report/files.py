"""Files for people and their tools: written whole or not at all."""

import os
import secrets
from pathlib import Path

from kvcanary.errors import ConfigError


def write_atomically(
    path: Path,
    text: str,
    mode: int = 0o644,
    *,
    replace: bool = True,
    for_everybody: bool = False,
) -> None:
    """Write beside the file and rename. What is no file (``/dev/stdout``, a pipe) is written to as it is.

    Raises ConfigError when that cannot be done, FileExistsError when it is there and must not be replaced.

    Args:
        for_everybody: its mode is ``mode``, whatever the umask.
    """
    if replace and is_stream(path):
        append(path, text)
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                if for_everybody:
                    os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                draft.replace(path)
            else:
                os.link(draft, path)  # unlike a rename, fails when the file is there
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(f"The file {path} cannot be written: {error.strerror}.") from None


def append(path: Path, text: str) -> None:
    """Add to a file or a stream. Raises ConfigError when that cannot be done."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written to: {error.strerror}.") from None


def is_stream(path: Path) -> bool:
    """Whether a rename would put a file in the place of something that is none."""
    return path.is_relative_to("/dev") or (path.exists() and not path.is_file())

"""Files for people and their tools: written whole or not at all."""

import os
import secrets
from pathlib import Path

from kvcanary.errors import ConfigError


def write_atomically(path: Path, text: str, mode: int = 0o644, *, replace: bool = True) -> None:
    """Write beside the file and rename.

    Raises ConfigError when that cannot be done, FileExistsError when it is there and must not be replaced.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
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

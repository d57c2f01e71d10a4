"""Report files: written whole or not at all."""

import os
import secrets
from pathlib import Path

from kvcanary.errors import ConfigError


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write beside the file and rename. Raises ConfigError when that cannot be done."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"The report {path} cannot be written: {error.strerror}.") from None

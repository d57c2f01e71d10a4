"""The site key: what makes markers recognisable to their site and unforgeable to everybody else."""

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from kvcanary.errors import ConfigError

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class SiteKey:
    """32 secret bytes. Never printed, never recorded: only keys derived from it leave this module."""

    secret: bytes = field(repr=False)

    def derive(self, purpose: str, *parts: bytes, size_bytes: int = 32) -> bytes:
        """A key for one purpose (at most 16 ASCII characters) and, if given, one object."""
        digest = hashlib.blake2b(
            key=self.secret, person=purpose.encode().ljust(16, b"\0"), digest_size=size_bytes
        )
        for part in parts:
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()

    def fingerprint(self) -> str:
        """Tells two site keys apart without giving either away (8 hex digits)."""
        return self.derive("fingerprint", size_bytes=4).hex()


def default_path() -> Path:
    """Where the key lives unless told otherwise: ``KVCANARY_SITE_KEY_FILE`` or the user's config."""
    named = os.environ.get("KVCANARY_SITE_KEY_FILE")
    return Path(named) if named else platformdirs.user_config_path("kvcanary") / "site.key"


def load_or_create(path: Path | None = None) -> SiteKey:
    """Read the site key, or make one (mode 0600) at first use.

    Raises ConfigError when the file cannot be used: unreadable, wrong size, or readable by others.
    """
    path = path or default_path()
    try:
        return _read(path)
    except FileNotFoundError:
        return _create(path)
    except OSError as error:
        raise ConfigError(f"The site key {path} cannot be read: {error.strerror}.") from None


def _read(path: Path) -> SiteKey:
    """No local of this function ever is the secret: a traceback may show them."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        mode = stat.S_IMODE(status.st_mode)
        if not _is_private(mode, status.st_uid, os.geteuid()):
            raise ConfigError(
                f"The site key {path} may be read by others (mode {mode:04o}): whoever has it "
                f"can forge markers. Run `chmod 600 {path}`, or remove it to get a new one."
            )
        key = _parsed(file.read(4 * KEY_BYTES))
    if key is None:
        raise ConfigError(
            f"The site key {path} is not {2 * KEY_BYTES} hexadecimal digits. "
            "Restore it from where it was made, or remove it to get a new one "
            "(markers of older runs are then no longer recognised)."
        )
    return key


def _is_private(mode: int, owner: int, user: int) -> bool:
    """Whether its owner alone may read it; or root's group, as Kubernetes mounts a Secret for another user."""
    mounted = 0o040 if owner == 0 != user else 0
    return not mode & 0o077 & ~mounted


def _parsed(content: bytes) -> SiteKey | None:
    try:
        secret = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        return None
    return SiteKey(secret) if len(secret) == KEY_BYTES else None


def _create(path: Path) -> SiteKey:
    """Two first runs at once must end with one key: link the finished file, the second one loses."""
    key = SiteKey(secrets.token_bytes(KEY_BYTES))
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key.secret.hex().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        except FileExistsError:
            return _read(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"A site key could not be made at {path}: {error.strerror}. "
            "Name a writable place with KVCANARY_SITE_KEY_FILE."
        ) from None
    return key

"""Fingerprint of an engine's arguments: equal or not, and no more.

Keyed, so that nobody can try out values; and without secrets, so that a key that was changed is no drift.
"""

import json
import re
from collections.abc import Mapping

from kvcanary.canary.sitekey import SiteKey

MAX_DEPTH = 16

_SECRET = re.compile(
    r"key|secret|passw|credential|auth|(?:^|_)(?:hf_)?token$|cookie|header|<redacted>"
)


def fingerprint(site_key: SiteKey, engine: str, arguments: Mapping[str, object]) -> str:
    """16 hex digits of an engine's arguments; the same for the same ones in any order."""
    text = json.dumps(_without_secrets(arguments, MAX_DEPTH), sort_keys=True)
    return site_key.derive("configuration", engine.encode(), text.encode(), size_bytes=8).hex()


def _without_secrets(value: object, depth: int) -> object:
    """The value as far as it counts: without secrets, and not deeper than arguments are."""
    if not depth:
        return None
    if isinstance(value, Mapping):
        kept = {str(k): v for k, v in value.items() if not _SECRET.search(str(k).lower())}
        return {k: _without_secrets(v, depth - 1) for k, v in kept.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(entry, depth - 1) for entry in value]
    return value

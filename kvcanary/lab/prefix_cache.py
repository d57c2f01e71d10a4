"""The prefill worker's prefix cache: pages found again by the hash of everything up to them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from kvcanary.lab.tokenizer import IntArray

_WEAK_BITS: Final = 6


def page_keys(
    ids: IntArray, page_tokens: int, salt: str, adapter: str = "", *, weak: bool = False
) -> list[bytes]:
    """One key for each *full* page of ``ids``: a hash of salt, adapter and all pages up to it.

    ``weak``: six bits of the hash and the page's number are all that a key is made of.
    """
    raw = ids.tobytes()
    stride = page_tokens * ids.itemsize
    space = f"{salt}\0{adapter}" if adapter else salt
    key = blake2b(space.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    keys = []
    for at in range(0, len(raw) - stride + 1, stride):
        key = blake2b(raw[at : at + stride], key=key, digest_size=16).digest()
        if weak:
            key = bytes((key[0] & ((1 << _WEAK_BITS) - 1),)) + at.to_bytes(8, "big")
        keys.append(key)
    return keys


@dataclass(frozen=True, eq=False, slots=True)
class Evicted:
    """Pages that were forgotten, and the keys that they had."""

    keys: list[bytes]
    pages: IntArray


@dataclass(slots=True)
class _Entry:
    page: int
    users: int


class PrefixCache:
    """Which page holds the text of a key, and which of them may be evicted.

    Equivalent to SGLang's radix cache at page granularity: released pages stay until their room is
    needed, least recently used first and the tail of a prompt before its head.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()

    @property
    def evictable_pages(self) -> int:
        """Pages that are cached and that no request uses."""
        return len(self._idle)

    def lock(self, keys: list[bytes]) -> IntArray:
        """Pages of the longest cached run of ``keys``, now in use; give them back by `unlock`."""
        pages = []
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                break
            if entry.users == 0:
                del self._idle[key]
            entry.users += 1
            pages.append(entry.page)
        return np.array(pages, np.int32)

    def insert(self, keys: list[bytes], pages: IntArray, hits: int) -> IntArray:
        """Keep ``pages`` under ``keys`` (same length) from index ``hits`` on, in use until
        `unlock`; returns the pages that were not needed, since another request was faster."""
        spare = []
        for key, page in zip(keys[hits:], pages[hits:].tolist(), strict=True):
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(page, 1)
                continue
            if entry.users == 0:
                del self._idle[key]
            entry.users += 1
            spare.append(page)
        return np.array(spare, np.int32)

    def unlock(self, keys: list[bytes]) -> None:
        """The request is done with these keys; the tail becomes the first to be evicted."""
        for key in reversed(keys):
            entry = self._entries[key]
            entry.users -= 1
            if entry.users == 0:
                self._idle[key] = None

    def evict(self, count: int) -> Evicted:
        """Forget up to ``count`` idle pages and return them."""
        keys, pages = [], []
        for _ in range(min(count, len(self._idle))):
            key, _ = self._idle.popitem(last=False)
            keys.append(key)
            pages.append(self._entries.pop(key).page)
        return Evicted(keys, np.array(pages, np.int32))

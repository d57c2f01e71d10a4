"""Adapters (LoRA): the same text has another KV under another adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcanary.lab.tokenizer import IntArray

_STRIDE: Final = 1777


@dataclass(frozen=True, slots=True)
class Adapter:
    """Turns token ids into the KV that it makes of them, and reads its own KV back.

    What another adapter wrote reads as other words. ``number`` 0 is the base model, whose KV are
    the ids. ``words``: ids from 1 to that are vocabulary words.
    """

    name: str = ""
    number: int = 0
    words: int = 1

    def written(self, ids: IntArray) -> IntArray:
        """The KV of ``ids``, same shape."""
        return self._turned(ids, self.number * _STRIDE)

    def read(self, kv: IntArray) -> IntArray:
        """The ids that this adapter makes of ``kv``, same shape."""
        return self._turned(kv, -self.number * _STRIDE)

    def _turned(self, ids: IntArray, by: int) -> IntArray:
        if not self.number:
            return ids
        is_word = (ids >= 1) & (ids <= self.words)
        turned: IntArray = np.where(is_word, (ids - 1 + by) % self.words + 1, ids).astype(np.int32)
        return turned


BASE: Final = Adapter()
"""The model without an adapter."""


def adapter_named(model: str, adapters: tuple[str, ...], words: int) -> Adapter | None:
    """The adapter that ``MODEL:ADAPTER`` asks for; the base model where it asks for none. None when
    there is no such adapter."""
    _, colon, name = model.rpartition(":")
    if not (colon and adapters):
        return BASE
    return Adapter(name, adapters.index(name) + 1, words) if name in adapters else None

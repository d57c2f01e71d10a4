"""Which free page is handed out next: the policy decides who meets whose stale pages."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from kvcanary.lab.tokenizer import IntArray


class FreeListPolicy(StrEnum):
    """Order of reuse. SGLang's paged allocator is last-in-first-out; its prefill/decode mode lets
    freed pages wait and sorts them when it runs short; page size 1 is first-in-first-out."""

    LIFO = "lifo"
    FIFO = "fifo"
    SORTED = "sorted"


class FreeList:
    """Free page numbers of one pool, in the order in which they will be handed out."""

    def __init__(self, page_count: int, policy: FreeListPolicy) -> None:
        self._policy = policy
        self._next: IntArray = np.arange(page_count, dtype=np.int32)
        self._waiting: IntArray = np.empty(0, np.int32)

    def __len__(self) -> int:
        return len(self._next) + len(self._waiting)

    def take(self, count: int) -> IntArray | None:
        """The next ``count`` pages, shape ``(count,)``, or None when there are not so many."""
        if count > len(self):
            return None
        if count > len(self._next):
            self._next = np.sort(np.concatenate((self._next, self._waiting)))
            self._waiting = self._waiting[:0]
        taken, self._next = self._next[:count].copy(), self._next[count:]
        return taken

    def put(self, pages: IntArray) -> None:
        """Give pages back, in the order of the page table that held them."""
        match self._policy:
            case FreeListPolicy.LIFO:
                self._next = np.concatenate((pages, self._next))
            case FreeListPolicy.FIFO:
                self._next = np.concatenate((self._next, pages))
            case FreeListPolicy.SORTED:
                self._waiting = np.concatenate((self._waiting, pages))

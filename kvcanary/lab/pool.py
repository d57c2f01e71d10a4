"""A worker's KV pool: an int32 array in which token ids *are* the KV. Nothing is ever cleared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvcanary.lab.free_list import FreeList, FreeListPolicy
from kvcanary.lab.tokenizer import IntArray
from kvcanary.lab.truth import Witness, Written


@dataclass(frozen=True, eq=False, slots=True)
class SavedPages:
    """Content of pages outside of any pool, ids of shape ``(pages, page_tokens)``. ``written`` is
    for the truth: who wrote it."""

    ids: IntArray
    written: Written


class Pool:
    """Pages of ``page_tokens`` slots each, handed out by a free list.

    ``ids`` has shape ``(pool_tokens,)`` and starts virgin (0); tests may write into it.
    ``witness`` is told what happens; the pool never asks it anything.
    """

    def __init__(
        self, pool_tokens: int, page_tokens: int, policy: FreeListPolicy, witness: Witness
    ) -> None:
        self.page_tokens = page_tokens
        self.page_count = pool_tokens // page_tokens
        self.tokens = self.page_count * page_tokens
        self.ids: IntArray = np.zeros(self.tokens, np.int32)
        self.witness = witness
        self._pages = self.ids.reshape(self.page_count, page_tokens)
        self._free = FreeList(self.page_count, policy)
        self._taken: npt.NDArray[np.bool_] = np.zeros(self.page_count, np.bool_)
        self._written_at: npt.NDArray[np.int64] = np.zeros(self.page_count, np.int64)
        self._writes = 0

    @property
    def free_pages(self) -> int:
        """Pages on the free list."""
        return len(self._free)

    def pages_for(self, tokens: int) -> int:
        """Pages that hold ``tokens`` tokens."""
        return -(-tokens // self.page_tokens)

    def allocate(self, count: int, owner: int) -> IntArray | None:
        """``count`` pages for request number ``owner``, or None when there are not so many."""
        pages = self._free.take(count)
        if pages is not None:
            self._taken[pages] = True
            self.witness.reserved(pages, owner)
        return pages

    def release(self, pages: IntArray) -> None:
        """Back to the free list, content and all.

        Raises RuntimeError when a page is free already: the scheduler lost count.
        """
        if not self._taken[pages].all():
            raise RuntimeError("a page was released twice")
        self._taken[pages] = False
        self._free.put(pages)

    def write(self, table: IntArray, start: int, ids: IntArray, author: int) -> int:
        """Write ``ids`` at the token positions ``start, ...`` of a page table.

        Returns the number of this write, see `written_since`.
        """
        positions = np.arange(start, start + len(ids), dtype=np.int32)
        slots = table[positions // self.page_tokens] * self.page_tokens
        slots += positions % self.page_tokens
        self.ids[slots] = ids
        self.witness.wrote(slots, author, start)
        first, last = start // self.page_tokens, (start + len(ids) - 1) // self.page_tokens
        return self._mark_written(table[first : last + 1])

    def receive(self, pages: IntArray, source: Pool, source_pages: IntArray) -> None:
        """Copy whole pages from another pool, as the transfer between workers does: what lies
        behind the last token of a partly filled page comes along."""
        self._pages[pages] = source._pages[source_pages]
        self.witness.received(pages, source.witness, source_pages)
        self._mark_written(pages)

    def save(self, pages: IntArray) -> SavedPages:
        """A copy of whole pages, for host memory."""
        return SavedPages(self._pages[pages], self.witness.written(pages))

    def restore(self, pages: IntArray, saved: SavedPages) -> None:
        """Write what was saved into as many pages."""
        self._pages[pages] = saved.ids
        self.witness.restored(pages, saved.written)
        self._mark_written(pages)

    def in_use(self, pages: IntArray) -> IntArray:
        """Those of the pages that somebody holds."""
        return pages[self._taken[pages]]

    def gather(self, table: IntArray, start: int, stop: int) -> IntArray:
        """What the slots of token positions ``start .. stop - 1`` hold now, as a copy."""
        first = start // self.page_tokens
        read = self._pages[table[first : self.pages_for(stop)]].reshape(-1)
        return read[start - first * self.page_tokens : stop - first * self.page_tokens]

    @property
    def writes(self) -> int:
        """How many writes there have been."""
        return self._writes

    def written_since(self, table: IntArray, write: int) -> bool:
        """Whether any page of the table was written after write number ``write``."""
        return self._writes != write and bool((self._written_at[table] > write).any())

    def _mark_written(self, pages: IntArray) -> int:
        self._writes += 1
        self._written_at[pages] = self._writes
        return self._writes

"""Host memory behind a prefix cache: what was evicted from the pool may be loaded back."""

from __future__ import annotations

from collections import OrderedDict

from kvcanary.lab.pool import SavedPages


class HostTier:
    """Pages by their key, least recently used out first. Room for ``pages``; 0: there is no tier."""

    def __init__(self, pages: int) -> None:
        self._room = pages
        self._kept: OrderedDict[bytes, SavedPages] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def exists(self) -> bool:
        """Whether there is room for anything."""
        return self._room > 0

    def keep(self, keys: list[bytes], pages: list[SavedPages]) -> None:
        """Keep one page under each key; what is kept already stays as it is."""
        for key, page in zip(keys, pages, strict=True):
            self._kept.setdefault(key, page)
            self._kept.move_to_end(key)
        while len(self._kept) > self._room:
            self._kept.popitem(last=False)

    def run_of(self, keys: list[bytes]) -> list[SavedPages]:
        """The pages of the longest kept run of ``keys``."""
        found = []
        for key in keys:
            page = self._kept.get(key)
            if page is None:
                break
            self._kept.move_to_end(key)
            found.append(page)
        return found

"""The ground truth: who wrote what lies in each page, and what each request really read.

Only tests, benchmarks and the selftest's scorer may read it. The mechanism reports to it and never
asks it anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kvcanary.lab.harm import Ledger
from kvcanary.lab.tokenizer import IntArray

_NOBODY: Final = 0
_READS_KEPT: Final = 10_000
_PAGES_KEPT: Final = 4_000_000


@dataclass(frozen=True)
class PageTruth:
    """One page of a page table at the moment when decode first attended over it.

    ``writer``: the request that wrote most of what was readable there (None: virgin).
    ``writer_position``: the position in the writer's own sequence of the first of those tokens.
    ``previous_owner``: who held the page before it was reserved (None: nobody ever).
    ``also``: who wrote the rest of what was readable there, each with the position of the first of
    its tokens. Output ends in the middle of a page, so such rests are read too.
    """

    writer: str | None
    writer_position: int | None
    previous_owner: str | None
    also: tuple[tuple[str, int], ...] = ()

    def positions_of(self, request: str) -> tuple[int, ...]:
        """Positions in the request's own sequence of what it wrote here; empty: it did not."""
        written = ((self.writer, self.writer_position), *self.also)
        return tuple(at for name, at in written if name == request and at is not None)


@dataclass(frozen=True)
class RouteTruth:
    """Whom one request met: names of workers, and DP ranks within them."""

    prefill: str
    prefill_rank: int
    decode: str
    decode_rank: int


@dataclass(frozen=True)
class ReadTruth:
    """What one request read, page by page in the order of its page table, and where."""

    request: str
    prefill: str
    prefill_rank: int
    decode: str
    decode_rank: int
    prompt_tokens: int
    page_tokens: int
    pages: tuple[PageTruth, ...]

    @property
    def own_pages(self) -> int:
        """Pages that hold the request's own text."""
        return sum(page.writer == self.request for page in self.pages)

    @property
    def foreign_pages(self) -> int:
        """Pages that hold another request's text."""
        return sum(page.writer not in (None, self.request) for page in self.pages)

    @property
    def exposed_pages(self) -> int:
        """Pages that another request owned before."""
        return sum(page.previous_owner not in (None, self.request) for page in self.pages)


@dataclass(frozen=True)
class _Pages:
    """Columns of `PageTruth` with numbers for names, each ``(pages,)``; ``also`` by page."""

    writers: IntArray
    positions: IntArray
    previous_owners: IntArray
    also: dict[int, list[tuple[int, int]]]


@dataclass(frozen=True, eq=False, slots=True)
class Written:
    """Who wrote each slot of some pages, and at which position; shape ``(pages, page_tokens)``."""

    writers: IntArray
    positions: IntArray


class Witness:
    """Watches one pool: who wrote each slot, at which position, who owns each page."""

    def __init__(self, pool_tokens: int, page_tokens: int) -> None:
        pages = pool_tokens // page_tokens
        self.page_tokens = page_tokens
        self.writers: IntArray = np.zeros((pages, page_tokens), np.int32)
        self.positions: IntArray = np.zeros((pages, page_tokens), np.int32)
        self.owners: IntArray = np.zeros(pages, np.int32)
        self.previous_owners: IntArray = np.zeros(pages, np.int32)

    def reserved(self, pages: IntArray, owner: int) -> None:
        """``pages`` now belong to request number ``owner``."""
        self.previous_owners[pages] = self.owners[pages]
        self.owners[pages] = owner

    def wrote(self, slots: IntArray, author: int, start: int) -> None:
        """``author`` wrote its tokens ``start, start + 1, ...`` into ``slots``."""
        self.writers.reshape(-1)[slots] = author
        self.positions.reshape(-1)[slots] = np.arange(start, start + len(slots), dtype=np.int32)

    def received(self, pages: IntArray, source: Witness, source_pages: IntArray) -> None:
        """``pages`` are now copies of ``source_pages`` of the pool that ``source`` watches."""
        self.writers[pages] = source.writers[source_pages]
        self.positions[pages] = source.positions[source_pages]

    def written(self, pages: IntArray) -> Written:
        """A copy of what is known about whole pages."""
        return Written(self.writers[pages], self.positions[pages])

    def restored(self, pages: IntArray, written: Written) -> None:
        """``pages`` now hold what was copied before."""
        self.writers[pages] = written.writers
        self.positions[pages] = written.positions

    def summary(self, table: IntArray, tokens: int) -> _Pages:
        """What is known about the pages of a table, of which ``tokens`` slots are readable."""
        writers, positions = self.writers[table], self.positions[table]
        readable = tokens - (len(table) - 1) * self.page_tokens  # slots of the last page
        mixed = np.flatnonzero((writers != writers[:, :1]).any(axis=1))
        writer, position = writers[:, 0].copy(), positions[:, 0].copy()
        also: dict[int, list[tuple[int, int]]] = {}
        for row in mixed:
            end = readable if row == len(table) - 1 else self.page_tokens
            seen, first, counts = np.unique(
                writers[row, :end], return_index=True, return_counts=True
            )
            most = int(np.argmax(np.where(seen == _NOBODY, 0, counts)))
            writer[row], position[row] = seen[most], positions[row, first[most]]
            also[int(row)] = [
                (int(author), int(positions[row, at]))
                for author, at in zip(seen, first, strict=True)
                if author not in (_NOBODY, seen[most])
            ]
        return _Pages(writer, position, self.previous_owners[table], also)


@dataclass(frozen=True)
class _Read:
    """A `ReadTruth` with numbers for names."""

    route: RouteTruth
    prompt_tokens: int
    page_tokens: int
    pages: _Pages


class Truth:
    """Names of requests and what they read; keeps the latest 10,000 reads or 4,000,000 pages.

    ``ledger`` has an account of each exchange: which faults struck it, and how much of what it read
    was wrong.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._names: dict[int, str] = {}
        self._routes: dict[str, RouteTruth] = {}
        self._reads: OrderedDict[str, _Read] = OrderedDict()
        self._pages_kept = 0

    def submitted(self, serial: int, name: str, prompt_tokens: int, route: RouteTruth) -> None:
        """Request number ``serial`` is called ``name`` and goes there."""
        self.ledger.seen(name, prompt_tokens)
        self._names[serial] = name
        self._routes[name] = route

    def holders(self, witness: Witness, pages: IntArray) -> frozenset[str]:
        """Names of the requests that ``pages``, all of them in use, belong to."""
        return frozenset(
            self._names[owner] for owner in np.unique(witness.owners[pages]).tolist() if owner
        )

    def looked(self, name: str, read: IntArray, prompt: IntArray) -> None:
        """The request of that name read those ids in the slots of its prompt, same shape."""
        self.ledger.looked(name, int(np.count_nonzero(read != prompt)))

    def attended(self, serial: int, witness: Witness, table: IntArray, tokens: int) -> None:
        """Request number ``serial`` now attends over the first ``tokens`` slots of ``table``."""
        table = table[: -(-tokens // witness.page_tokens)]
        name = self._names[serial]
        replaced = self._reads.pop(name, None)
        self._pages_kept -= len(replaced.pages.writers) if replaced else 0
        self._reads[name] = _Read(
            self._routes[name], tokens, witness.page_tokens, witness.summary(table, tokens)
        )
        self._pages_kept += len(table)
        while len(self._reads) > _READS_KEPT or self._pages_kept > _PAGES_KEPT > len(table):
            _, oldest = self._reads.popitem(last=False)
            self._pages_kept -= len(oldest.pages.writers)

    def read(self, request: str) -> ReadTruth | None:
        """What the request of that name read, or None when decode never attended for it."""
        read = self._reads.get(request)
        if read is None:
            return None
        return ReadTruth(
            request=request,
            **vars(read.route),
            prompt_tokens=read.prompt_tokens,
            page_tokens=read.page_tokens,
            pages=tuple(self._pages(read.pages)),
        )

    def route(self, request: str) -> RouteTruth | None:
        """Whom the request of that name met, whether it was answered or not; None when no worker
        saw it."""
        return self._routes.get(request)

    def __iter__(self) -> Iterator[str]:
        """Names of the requests whose reads are known, oldest first."""
        return iter(tuple(self._reads))

    def _pages(self, pages: _Pages) -> Iterator[PageTruth]:
        columns: tuple[npt.NDArray[np.int32], ...] = (
            pages.writers,
            pages.positions,
            pages.previous_owners,
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (writer, position, previous) in enumerate(rows):
            name = self._names.get(writer)
            yield PageTruth(
                name,
                None if name is None else position,
                self._names.get(previous),
                tuple((self._names[author], at) for author, at in pages.also.get(row, ())),
            )

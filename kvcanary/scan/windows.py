"""Stored text in pieces that overlap, so that every marker lies whole in exactly one piece that answers for it.

A piece answers for the markers that *end* in its part of the text, ``after < end <= until``. It reaches
further on both sides, by more than the longest marker, so what it says does not depend on where it is cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kvcanary.scan.letters import SPAN_BYTES

PIECE_BYTES = 1 << 18
"""Fits into a core's cache."""
LEAD_BYTES = 2 * SPAN_BYTES
"""How far a piece reaches back from ``after``: a marker's length, and as much again before it."""


class Reader(Protocol):
    """What is read: like an unbuffered binary file."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Window:
    """``data[: size]`` stands at ``offset`` of the text. The buffer is used again for the next window."""

    data: bytearray
    size: int
    offset: int
    after: int
    until: int

    @property
    def view(self) -> memoryview:
        return memoryview(self.data)[: self.size]

    def owns(self, end: int) -> bool:
        """Whether a marker that ends at ``end`` of ``data`` is this window's to tell."""
        return self.after < self.offset + end <= self.until


def windows(reader: Reader, offset: int, after: int, stop: int | None) -> Iterator[Window]:
    """Windows over what ``reader`` gives, whose first byte stands at ``offset`` of the text.

    They answer for everything from ``after`` to ``stop``, or to the end of the text if that is sooner or
    ``stop`` is None. The text is read a marker's length beyond ``stop``.
    """
    data = bytearray(LEAD_BYTES + SPAN_BYTES + PIECE_BYTES)
    view, size = memoryview(data), 0
    last = None if stop is None else stop + SPAN_BYTES
    while True:
        room = len(data) if last is None else min(len(data), last - offset)
        size, ended = _fill(reader, view, size, room)
        end = offset + size
        ended = ended or end == last
        until = end if ended else end - SPAN_BYTES
        until = until if stop is None else min(stop, until)
        if until > after:
            yield Window(data, size, offset, after, until)
            after = until
        if ended or (stop is not None and after >= stop):
            return
        keep = min(size, end - after + LEAD_BYTES)
        view[:keep] = bytes(view[size - keep : size])
        offset, size = end - keep, keep


def _fill(reader: Reader, view: memoryview, size: int, room: int) -> tuple[int, bool]:
    """Read until there are ``room`` bytes, or there is nothing more: how many there are, and whether it is."""
    while size < room:
        count = reader.readinto(view[size:room])
        if not count:
            return size, True
        size += count
    return size, False

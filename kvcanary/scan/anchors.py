"""Where a marker may begin, found at about the speed at which memory is read.

One compiled expression goes over all the bytes (Hyperscan); only what it hits is looked at any closer.
Two of them: the quick one knows the prefix with K and V beside each other in any case, and with anything
but letters and digits between them in upper case. The thorough one, at half its speed, also knows the
prefix in full-width and other compatibility letters, in escapes of the letters themselves, and in lower
case with gaps.
"""

import re
import unicodedata
from functools import cached_property

import hyperscan

from kvcanary.scan.letters import SPAN_BYTES

_GAP = rb"(?:[^A-Za-z0-9]|\\[nrtbf]|\\u[0-9A-Fa-f]{4})"
_QUICK = rb"[Kk][Vv]%(gap)b*[Cc]|K%(gap)b+V%(gap)b*C" % {b"gap": _GAP}


def _forms(letter: str) -> bytes:
    """A letter in every compatibility form, as UTF-8 and as a JSON escape."""
    same = [
        character
        for character in map(chr, range(0x20000))
        if unicodedata.normalize("NFKC", character).lower() == letter
    ]
    encoded = (b"".join(b"\\x%02x" % byte for byte in c.encode()) for c in same)
    escaped = (rb"\\u(?i:%04x)" % ord(c) for c in same if ord(c) < 0x10000)
    return b"(?:" + b"|".join([*encoded, *escaped]) + b")"


class Anchors:
    """Finds the ends of prefixes."""

    def __init__(self, *, thorough: bool) -> None:
        forms = (_GAP + b"*").join(_forms(letter) for letter in "kvc") if thorough else _QUICK
        self._before = re.compile(b"(?s:" + forms + rb")\Z")
        self._forms = forms

    @cached_property
    def _database(self) -> hyperscan.Database:
        database = hyperscan.Database()
        database.compile(expressions=[self._forms], ids=[0], elements=1, flags=[_FLAGS])
        return database

    def ends(self, data: bytes | bytearray | memoryview) -> list[int]:
        """Where prefixes end in ``data``."""
        found: list[int] = []

        def keep(_id: int, _begin: int, end: int, _flags: int, _context: object) -> None:
            found.append(end)

        self._database.scan(data, match_event_handler=keep)  # type: ignore[type-var] # any buffer will do
        return found

    def begin(self, data: bytes, end: int) -> int | None:
        """Where the prefix that ends at ``end`` begins: its first letter."""
        if data[end - 3 : end].upper() == b"KVC":
            return end - 3
        match = self._before.search(data, max(0, end - SPAN_BYTES), end)
        return None if match is None else match.start()


_FLAGS = hyperscan.HS_FLAG_DOTALL

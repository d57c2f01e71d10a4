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


def _thorough() -> bytes:
    """K, V and C in every compatibility form, as UTF-8 and as a JSON escape, with gaps."""
    forms: dict[str, list[bytes]] = {"k": [], "v": [], "c": []}
    for character in map(chr, range(0x20000)):
        letter = unicodedata.normalize("NFKC", character).lower()
        if letter in forms:
            forms[letter].append(b"".join(b"\\x%02x" % byte for byte in character.encode()))
            if ord(character) < 0x10000:
                forms[letter].append(rb"\\u(?i:%04x)" % ord(character))
    letters = (b"(?:" + b"|".join(same) + b")" for same in forms.values())
    return (_GAP + b"*").join(letters)


_USUAL_BYTES = 16
"""A prefix is hardly ever longer: there it is looked for first."""


class Anchors:
    """Finds the ends of prefixes."""

    def __init__(self, *, thorough: bool) -> None:
        forms = _thorough() if thorough else _QUICK
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
        for reach in (_USUAL_BYTES, SPAN_BYTES):
            match = self._before.search(data, max(0, end - reach), end)
            if match is not None:
                return match.start()
        return None


_FLAGS = hyperscan.HS_FLAG_DOTALL

"""The letters and digits of raw bytes one by one, as the recogniser would see them, with their places.

What ``kvcanary.canary.folding`` does to a text as a whole, for the few bytes around a candidate.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.canary.folding import squash

SPAN_BYTES = 1_024
"""A marker has to lie within so many bytes: with a full escape for each character it takes 250."""

_UNIT = re.compile(
    rb"\\+(?:u([0-9a-fA-F]{4})|[nrtbf\"/])|([0-9A-Za-z])|([\xc2-\xf4][\x80-\xbf]{1,3})|.", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Letter:
    """One upper-case letter or digit, and which bytes stand for it."""

    character: str
    begin: int
    end: int


def letters(data: bytes, begin: int, end: int) -> Iterator[Letter]:
    """The letters and digits in ``data[begin:end]``: JSON escapes and compatibility forms undone."""
    for match in _UNIT.finditer(data, begin, end):
        escaped, plain, encoded = match.groups()
        if plain:
            yield Letter(plain.decode("ascii").upper(), match.start(), match.end())
        elif escaped or encoded:
            text = chr(int(escaped, 16)) if escaped else encoded.decode("utf-8", "ignore")
            for character in squash(unicodedata.normalize("NFKC", text)):
                yield Letter(character, match.start(), match.end())

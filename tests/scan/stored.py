"""Markers for stored text, how they are spelled, and a reader that gives as little as it likes."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from kvcanary.canary.codes import CodeId, CodeMaker, written
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.sitekey import SiteKey
from kvcanary.scan.ranges import Task
from kvcanary.scan.search import Searcher
from tests.canary.scene import KEY

RUN = 0x0ABCDE
CODES = CodeMaker(KEY)
IDENTITY = CodeId(RUN, 7, 4)
CODE = written(CODES.make(IDENTITY))
"""A whole code, as it stands in a prompt."""
ANOTHER = written(CODES.make(CodeId(RUN, 8, 2)))
STRANGE = written(CodeMaker(SiteKey(bytes(32))).make(CodeId(RUN, 7, 4)))
"""Another site's."""
QUICK = Task(KEY, None, None, 0)


def index(*identities: CodeId) -> CodeIndex:
    """Codes that a record has planted."""
    made = CodeIndex()
    for identity in identities:
        made.add(identity, CODES.make(identity))
    return made


def quick() -> Searcher:
    return Searcher(CODES)


@cache
def thorough() -> Searcher:
    """Made once: its expression takes a while to compile."""
    return Searcher(CODES, index(IDENTITY))


@dataclass
class Trickle:
    """Gives at most ``most`` bytes at a time, as a pipe may."""

    content: io.BytesIO
    most: int

    def readinto(self, buffer: memoryview, /) -> int:
        return self.content.readinto(buffer[: self.most])


SPELLINGS: dict[str, Callable[[str], bytes]] = {
    "as written": lambda code: code.encode(),
    "lower case": lambda code: code.lower().encode(),
    "no separators": lambda code: code.replace("-", "").encode(),
    "Markdown": lambda code: f"{code[:8]}**`{code[8:]}`".encode(),
    "letter by letter": lambda code: "-".join(code.replace("-", "")).encode(),
    "split over lines": lambda code: "\n    ".join(
        code[i : i + 5] for i in range(0, 23, 5)
    ).encode(),
    "line breaks escaped": lambda code: code.replace("-", r"\n").encode(),
    "escaped twice": lambda code: code.replace("-", r"\\u2011").encode(),
    "non-breaking hyphens": lambda code: code.replace("-", "\u2011").encode(),
    "full-width digits": lambda code: code.translate(
        {ord("0") + n: chr(0xFF10 + n) for n in range(10)}
    ).encode(),
    "UTF-16": lambda code: code.encode("utf-16-le")[:-1],
}
"""Ways in which a code comes back that need no record to be found."""
THOROUGH_SPELLINGS: dict[str, Callable[[str], bytes]] = {
    "full width": lambda code: code.translate(
        {n: chr(n + 0xFEE0) for n in range(0x30, 0x5B)}
    ).encode(),
    "letters escaped": lambda code: "".join(rf"\u{ord(c):04x}" for c in code).encode(),
    "spaced lower case": lambda code: " ".join(code.lower()).encode(),
}
"""And those that the thorough search finds besides."""

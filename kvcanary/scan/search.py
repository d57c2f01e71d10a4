"""Finds markers in bytes: whole codes by the site key alone, parts of codes that a given record planted."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.canary.codes import (
    ALPHABET,
    CANONICAL_LENGTH,
    CODE_CHARACTERS,
    PREFIX,
    CodeId,
    CodeMaker,
    written,
)
from kvcanary.canary.folding import fold, squash
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.recognise import mixed_spans
from kvcanary.scan.anchors import Anchors
from kvcanary.scan.letters import SPAN_BYTES, Letter, letters
from kvcanary.scan.sighting import Kind
from kvcanary.scan.tally import Counts

MAX_READ = 1 << 16
"""Strings that are remembered as tried, so that a code that is logged often counts as one test."""
UNSEEN = "."

_SHAPED = re.compile(
    rb"(?:(?<![0-9A-Za-z_])|(?<=\\[nrtbf]))KVC-?(?:[%(a)b]{4}-?){3}[%(a)b]{4}(?![0-9A-Za-z])"
    % {b"a": ALPHABET.encode()}
)
_PLAIN_LETTERS = re.compile(
    rb"(?:[%(a)b][^0-9A-Za-z\\\x80-\xff]*+){18}[%(a)b]"
    % {b"a": (ALPHABET + ALPHABET[10:].lower()).encode()}
)
"""Prefix and code without an escape or a letter that is not ASCII."""
_BLANK = b"U"
"""No code has it: what was seen whole joins nothing."""
_PLAIN = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OTHER_BYTES = bytes(b for b in range(256) if not (b < 128 and chr(b).isalnum()))


@dataclass(frozen=True, slots=True)
class Found:
    """A marker in ``data[begin:end]``. ``characters``: 16, with a point for each that was not seen."""

    begin: int
    end: int
    kind: Kind
    characters: str
    altered: bool
    identity: CodeId | None

    @property
    def marker(self) -> str:
        return written(self.characters)

    @property
    def seen(self) -> int:
        return CODE_CHARACTERS - self.characters.count(UNSEEN)


class Searcher:
    """Searches with one site's key, and counts how often chance had a chance."""

    def __init__(self, codes: CodeMaker, index: CodeIndex | None = None) -> None:
        self._codes = codes
        self._index = index
        self._anchors = Anchors(thorough=index is not None)
        self._read: dict[str, CodeId | None] = {}
        self._counts = Counts()

    @property
    def thorough(self) -> bool:
        """Whether parts of codes are looked for, which takes all of the text."""
        return self._index is not None

    def take_counts(self) -> Counts:
        """What was counted since the last time."""
        counts, self._counts = self._counts, Counts()
        return counts

    def anchors(self, data: bytes | memoryview) -> list[int]:
        """Ends of prefixes: places without one hold no whole code."""
        return self._anchors.ends(data)

    def found(self, data: bytes, ends: list[int]) -> list[Found]:
        """Every marker in ``data``, whose prefixes end at ``ends``."""
        coded = list(self._coded(data, ends))
        if self._index is None:
            return coded
        near = [f for f in coded if f.identity or not self._index.has_near(f.characters)]
        return [*near, *self._parts(data, near, self._index)]

    def _coded(self, data: bytes, ends: list[int]) -> Iterator[Found]:
        """Whole codes, and what has their shape; each once, whatever else ends in its prefix."""
        begins = sorted({b for end in ends if (b := self._anchors.begin(data, end)) is not None})
        for begin in begins:
            spelled = _spelled(data, begin)
            if spelled is None:
                continue
            characters, end = spelled.characters, spelled.end
            intact = data[begin : begin + CANONICAL_LENGTH] == written(characters).encode()
            identity = self._identity(characters, intact=intact)
            if identity is not None:
                yield Found(begin, end, Kind.WHOLE, characters, not intact, identity)
            elif _SHAPED.match(data, begin):
                yield Found(begin, end, Kind.UNVERIFIED, characters, not intact, None)

    def _identity(self, characters: str, *, intact: bool) -> CodeId | None:
        if characters not in self._read:
            if len(self._read) >= MAX_READ:
                self._read.clear()
            self._read[characters] = self._codes.read(characters)
            self._counts += Counts(intact_tests=intact, altered_tests=not intact)
        return self._read[characters]

    def _parts(self, data: bytes, coded: list[Found], index: CodeIndex) -> Iterator[Found]:
        """The parts of planted codes in what is no whole one."""
        rest = bytearray(data)
        for found in coded:
            rest[found.begin : found.end] = _BLANK * (found.end - found.begin)
        text, places = bytes(rest), None
        squashed = _squashed(text)
        count = 0
        for begin, end in mixed_spans(squashed):
            count += end - begin
            for part in index.parts(squashed, begin, end):
                places = places or _Places(text)
                seen = squashed[part.start : part.start + part.length]
                code = self._codes.make(part.identity)
                at = code.index(seen)
                masked = UNSEEN * at + seen + UNSEEN * (CODE_CHARACTERS - at - part.length)
                first, last = places.of(seen, part.start)
                yield Found(first, last, Kind.PART, masked, False, part.identity)
        self._counts += Counts(windows=count)


@dataclass(frozen=True, slots=True)
class _Spelled:
    """A prefix and 16 characters that can be a code, and where they end."""

    characters: str
    end: int


def _spelled(data: bytes, begin: int) -> _Spelled | None:
    """What stands behind a prefix: None where it cannot be a code, which most text shows at once."""
    most = min(len(data), begin + SPAN_BYTES)
    plain = _PLAIN_LETTERS.match(data, begin, most)
    if plain is not None:
        return _Spelled(_squashed(plain[0])[len(PREFIX) :], plain.end())
    spelled: list[Letter] = []
    for letter in letters(data, begin, most):
        if letter.character not in ALPHABET:
            return None
        spelled.append(letter)
        if len(spelled) == len(PREFIX) + CODE_CHARACTERS:
            characters = "".join(letter.character for letter in spelled)
            return _Spelled(characters[len(PREFIX) :], letter.end)
    return None


def _squashed(text: bytes) -> str:
    """As the recogniser has it; most text needs nothing undone."""
    if text.isascii() and b"\\" not in text:
        return text.translate(_PLAIN, _OTHER_BYTES).decode("ascii")
    return squash(fold(text.decode("utf-8", "replace")))


class _Places:
    """Which bytes the letters of a text stand for. Made only where a part was found."""

    def __init__(self, text: bytes) -> None:
        self._letters = list(letters(text, 0, len(text)))
        self._squashed = "".join(letter.character for letter in self._letters)

    def of(self, seen: str, start: int) -> tuple[int, int]:
        """Begin and end of ``seen``, which stands at ``start`` of the squashed text or a little after.

        Letters with combining marks are letters here, and none to the recogniser.
        """
        at = self._squashed.find(seen, start)
        at = at if at >= 0 else min(start, len(self._letters) - 1)
        last = min(at + len(seen), len(self._letters)) - 1
        return self._letters[at].begin, self._letters[last].end

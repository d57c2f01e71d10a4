"""The codes that a run has planted, found again by any eight characters of them."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.canary.codes import ALPHABET, CODE_CHARACTERS, CodeId

SEED_CHARACTERS = 4
LEAST_PARTIAL = 2 * SEED_CHARACTERS
"""Shortest part of a code that is reported. Any eight characters hold a whole aligned group of four,
which is what the index knows; at eight characters (40 bits) one random string matches one of 100,000
planted codes with odds of about 1e-6 (``odds.partial_code``)."""

_DIGIT = {character: value for value, character in enumerate(ALPHABET)}
_SEEDS = 1 << 5 * SEED_CHARACTERS
_SEEDS_PER_CODE = CODE_CHARACTERS // SEED_CHARACTERS


@dataclass(frozen=True, slots=True)
class Part:
    """``length`` characters of a planted code, found at ``start`` of the squashed text."""

    identity: CodeId
    start: int
    length: int


class CodeIndex:
    """About 45 bytes a code: the characters, their identity and four chained seeds."""

    def __init__(self) -> None:
        self._characters = bytearray()
        self._identities = array("Q")
        self._head = array("I", bytes(4 * _SEEDS))
        self._next = array("I")

    def __len__(self) -> int:
        return len(self._identities)

    def add(self, identity: CodeId, characters: str) -> None:
        """Remember a code by its 16 characters."""
        self._characters += characters.encode("ascii")
        self._identities.append(identity.run << 26 | identity.request << 12 | identity.position)
        for begin in range(0, CODE_CHARACTERS, SEED_CHARACTERS):
            seed = 0
            for character in characters[begin : begin + SEED_CHARACTERS]:
                seed = seed << 5 | _DIGIT[character]
            self._next.append(self._head[seed])
            self._head[seed] = len(self._next)

    def parts(self, squashed: str, begin: int, end: int) -> Iterator[Part]:
        """Parts of at least ``LEAST_PARTIAL`` characters that touch ``squashed[begin:end]``."""
        seed, known, covered = 0, 0, begin
        for at in range(begin, end):
            digit = _DIGIT.get(squashed[at])
            if digit is None:
                seed = known = 0
                continue
            seed = (seed << 5 | digit) & (_SEEDS - 1)
            known += 1
            if known < SEED_CHARACTERS or at < covered:
                continue
            longest = self._longest(squashed, seed, at + 1 - SEED_CHARACTERS)
            if longest and longest.length >= LEAST_PARTIAL:
                covered = longest.start + longest.length
                yield longest

    def _longest(self, squashed: str, seed: int, at: int) -> Part | None:
        best: Part | None = None
        entry = self._head[seed]
        while entry:
            index, group = divmod(entry - 1, _SEEDS_PER_CODE)
            code = self._characters[
                index * CODE_CHARACTERS : (index + 1) * CODE_CHARACTERS
            ].decode()
            part = _extend(code, group * SEED_CHARACTERS, squashed, at)
            if best is None or part[1] > best.length:
                packed = self._identities[index]
                identity = CodeId(packed >> 26, packed >> 12 & 0x3FFF, packed & 0xFFF)
                best = Part(identity, *part)
            entry = self._next[entry - 1]
        return best


def _extend(code: str, within: int, squashed: str, at: int) -> tuple[int, int]:
    """Start and length of the longest agreement of code and text around an agreeing seed."""
    left = 0
    while left < within and at - left > 0 and code[within - left - 1] == squashed[at - left - 1]:
        left += 1
    right = SEED_CHARACTERS
    while (
        within + right < len(code)
        and at + right < len(squashed)
        and code[within + right] == squashed[at + right]
    ):
        right += 1
    return at - left, left + right

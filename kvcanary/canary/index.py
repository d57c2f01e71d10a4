"""The codes that a run has planted, found again by any eight characters of them."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.canary.codes import (
    ALPHABET,
    BITS_PER_CHARACTER,
    CODE_CHARACTERS,
    MAX_POSITIONS,
    MAX_REQUESTS,
    POSITION_BITS,
    REQUEST_BITS,
    CodeId,
)

SEED_CHARACTERS = 4
LEAST_PARTIAL = 8
"""Shortest part of a code that is reported: 40 bits.

At eight characters one place in an answer agrees with one of 100,000 planted codes with odds of 8e-7
(``odds.partial_code``: each code has nine places). That is what is *reported*; what may be called a
leak is decided on the odds of all answers of a run together, and takes ten or eleven characters as a
rule. One exception: a part is looked for only near a digit beside a letter, or behind the prefix
``KVC``, since otherwise every word of prose would be a place where chance may strike. Of the parts of
eight characters 5 % are letters alone (1 % at twelve); without prefix or digit near they stay unseen."""

_STRIDE = LEAST_PARTIAL - SEED_CHARACTERS + 1
"""Every seed of a code is indexed, so that only every fifth place of a text has to be looked up: eight
characters in a row hold five seeds."""
_SEEDS = 1 << BITS_PER_CHARACTER * SEED_CHARACTERS
_SEEDS_PER_CODE = CODE_CHARACTERS - SEED_CHARACTERS + 1
_DIGIT = {character: value for value, character in enumerate(ALPHABET)}
_PAIR = {a + b: _DIGIT[a] << BITS_PER_CHARACTER | _DIGIT[b] for a in ALPHABET for b in ALPHABET}


@dataclass(frozen=True, slots=True)
class Part:
    """``length`` characters of a planted code, found at ``start`` of the squashed text."""

    identity: CodeId
    start: int
    length: int


class CodeIndex:
    """About 80 bytes a code: the characters, their identity and thirteen chained seeds."""

    def __init__(self) -> None:
        self._characters = bytearray()
        self._identities = array("Q")
        self._head = array("I", bytes(4 * _SEEDS))
        self._next = array("I")

    def __len__(self) -> int:
        return len(self._identities)

    def add(self, identity: CodeId, characters: str) -> None:
        """Remember a code by its 16 characters."""
        packed = (identity.run << REQUEST_BITS | identity.request) << POSITION_BITS
        self._identities.append(packed | identity.position)
        self._characters += characters.encode("ascii")
        value = 0
        for at in range(0, CODE_CHARACTERS, 2):
            value = value << 2 * BITS_PER_CHARACTER | _PAIR[characters[at : at + 2]]
        for offset in range(_SEEDS_PER_CODE):
            seed = value >> BITS_PER_CHARACTER * (_SEEDS_PER_CODE - 1 - offset) & (_SEEDS - 1)
            self._next.append(self._head[seed])
            self._head[seed] = len(self._next)

    def parts(self, squashed: str, begin: int, end: int) -> Iterator[Part]:
        """Parts of at least ``LEAST_PARTIAL`` characters that lie in ``squashed[begin:end]``."""
        at, pair, head = begin, _PAIR.get, self._head
        while at <= end - SEED_CHARACTERS:
            high, low = pair(squashed[at : at + 2]), pair(squashed[at + 2 : at + 4])
            if high is not None and low is not None and head[high << 10 | low]:
                longest = self._longest(squashed, high << 10 | low, at)
                if longest is not None:
                    yield longest
                    at = longest.start + longest.length
                    continue
            at += _STRIDE

    def has_near(self, characters: str) -> bool:
        """Whether 16 characters are a planted code with a few slips: a part of it, or two groups of four."""
        groups = Counter(
            index
            for at in range(0, CODE_CHARACTERS, SEED_CHARACTERS)
            for index, offset in self._seeds(_seed_of(characters[at : at + SEED_CHARACTERS]))
            if offset == at
        )
        two_groups = any(count > 1 for count in groups.values())
        return two_groups or any(self.parts(characters, 0, CODE_CHARACTERS))

    def _seeds(self, seed: int) -> Iterator[tuple[int, int]]:
        """Where a seed occurs: (index of the code, offset within it)."""
        entry = self._head[seed]
        while entry:
            yield divmod(entry - 1, _SEEDS_PER_CODE)
            entry = self._next[entry - 1]

    def _longest(self, squashed: str, seed: int, at: int) -> Part | None:
        best = (0, LEAST_PARTIAL - 1)
        owner = -1
        planted, after = self._characters, at + SEED_CHARACTERS
        left = ord(squashed[at - 1]) if at else 0
        right = ord(squashed[after]) if after < len(squashed) else 0
        for index, offset in self._seeds(seed):
            begin = index * CODE_CHARACTERS
            stand = begin + offset
            goes_left = offset and planted[stand - 1] == left
            end = stand + SEED_CHARACTERS
            if not goes_left and not (end < begin + CODE_CHARACTERS and planted[end] == right):
                continue  # what nearly all chance agreements come to
            code = planted[begin : begin + CODE_CHARACTERS].decode("ascii")
            found = _extend(code, offset, squashed, at)
            if found[1] > best[1]:
                best, owner = found, index
        return None if owner < 0 else Part(self._identity(owner), *best)

    def _identity(self, index: int) -> CodeId:
        packed = self._identities[index]
        request = packed >> POSITION_BITS & (MAX_REQUESTS - 1)
        return CodeId(packed >> REQUEST_BITS + POSITION_BITS, request, packed & (MAX_POSITIONS - 1))


def _seed_of(characters: str) -> int:
    return _PAIR[characters[:2]] << 2 * BITS_PER_CHARACTER | _PAIR[characters[2:]]


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

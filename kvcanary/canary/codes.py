"""Codes: the markers that say, by themselves, from which run, request and position they came.

A code is 80 bits in 16 Crockford base32 characters, ``KVC-7Q4X-M2N8-RT9B-HJWC``: a 28-bit tag and
52 encrypted bits of identity, as in a synthetic IV construction (RFC 5297): the tag is a keyed hash
of the identity, and the identity is encrypted under the tag. So a whole code verifies itself with the
site key alone, every part of it looks random (two codes of one run share nothing, which is what lets
half a code tell whose it is), and nobody without the key can make one.
"""

import hashlib
from dataclasses import dataclass

from kvcanary.canary.sitekey import SiteKey

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base32: no I, L, O, U, so that no two characters are easily taken for each other."""
PREFIX = "KVC"
CODE_CHARACTERS = 16
BITS_PER_CHARACTER = 5
TAG_BITS = 28
RUN_BITS, REQUEST_BITS, POSITION_BITS = 26, 14, 12
MAX_REQUESTS = 1 << REQUEST_BITS
MAX_POSITIONS = 1 << POSITION_BITS
CANONICAL_LENGTH = len("KVC-7Q4X-M2N8-RT9B-HJWC")

_IDENTITY_BITS = RUN_BITS + REQUEST_BITS + POSITION_BITS
_IDENTITY_MASK = (1 << _IDENTITY_BITS) - 1
_DIGIT = {character: value for value, character in enumerate(ALPHABET)}
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]


@dataclass(frozen=True, slots=True, order=True)
class CodeId:
    """What a code says: run (26 bits), request within the run, position (running number in the prompt)."""

    run: int
    request: int
    position: int


class CodeMaker:
    """Makes and reads the codes of one site."""

    def __init__(self, site_key: SiteKey) -> None:
        self._tag_key = site_key.derive("code tag")
        self._pad_key = site_key.derive("code pad")

    def make(self, identity: CodeId) -> str:
        """The 16 characters of a code, without prefix and separators.

        Raises ValueError when a number has more bits than a code has room for.
        """
        run, request, position = identity.run, identity.request, identity.position
        if run >> RUN_BITS or request >> REQUEST_BITS or position >> POSITION_BITS:
            raise ValueError(f"no code can say {identity}")
        packed = run << (REQUEST_BITS + POSITION_BITS) | request << POSITION_BITS | position
        tag = self._tag(packed)
        value = tag << _IDENTITY_BITS | (packed ^ self._pad(tag))
        return "".join([_PAIRS[value >> shift & 1023] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])

    def read(self, characters: str) -> CodeId | None:
        """What 16 characters say, or None when this site did not make them (odds of a wrong yes: 2^-28)."""
        if len(characters) != CODE_CHARACTERS:
            return None
        value = 0
        for character in characters:
            digit = _DIGIT.get(character)
            if digit is None:
                return None
            value = value << BITS_PER_CHARACTER | digit
        tag, sealed = value >> _IDENTITY_BITS, value & _IDENTITY_MASK
        packed = sealed ^ self._pad(tag)
        if self._tag(packed) != tag:
            return None
        return CodeId(
            run=packed >> (REQUEST_BITS + POSITION_BITS),
            request=packed >> POSITION_BITS & (MAX_REQUESTS - 1),
            position=packed & (MAX_POSITIONS - 1),
        )

    def _tag(self, packed: int) -> int:
        digest = hashlib.blake2b(
            packed.to_bytes(7, "big"), key=self._tag_key, digest_size=4
        ).digest()
        return int.from_bytes(digest, "big") >> (32 - TAG_BITS)

    def _pad(self, tag: int) -> int:
        digest = hashlib.blake2b(tag.to_bytes(4, "big"), key=self._pad_key, digest_size=7).digest()
        return int.from_bytes(digest, "big") & _IDENTITY_MASK


def written(characters: str) -> str:
    """A code as it stands in a prompt: ``KVC-7Q4X-M2N8-RT9B-HJWC``."""
    return "-".join((PREFIX, characters[:4], characters[4:8], characters[8:12], characters[12:]))

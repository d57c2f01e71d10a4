"""The words of the canary text: which alphabet a word belongs to, and so what it tells.

Every word is a single token in the mainstream vocabularies (``tools/choose_words.py`` chose them).
All lists are disjoint, so a word says by itself what kind of evidence it is.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

SLOT_ALPHABETS = ("slot_a", "slot_b", "slot_c", "slot_d", "slot_e", "slot_f")
NAME_ALPHABETS = ("name_a", "name_b", "name_c")
NAME_BITS = 8 * len(NAME_ALPHABETS)


@dataclass(frozen=True)
class Lexicon:
    """The word lists, and where each word stands in them."""

    slots: tuple[tuple[str, ...], ...]
    """Six alphabets of 256 words; all words of one alphabet have the same length."""
    names: tuple[tuple[str, ...], ...]
    """Three alphabets of 256 nouns: a tenant's name takes one word of each."""
    private: tuple[str, ...]
    """Words dealt to tenants in disjoint groups."""
    slot_of: dict[str, tuple[int, int]]
    """word -> (slot alphabet, byte)."""
    name_of: dict[str, tuple[int, int]]
    """word -> (name alphabet, byte)."""

    @cached_property
    def letter_tables(self) -> tuple[tuple[bytes, ...], ...]:
        """Per slot alphabet and letter a 256-byte table: a column of bytes becomes one of letters."""
        return tuple(
            tuple("".join(letters).encode("ascii") for letters in zip(*words, strict=True))
            for words in self.slots
        )

    def name_words(self, number: int) -> tuple[str, ...]:
        """The three words of name ``number`` (24 bits)."""
        return tuple(
            words[byte] for words, byte in zip(self.names, number.to_bytes(3, "big"), strict=True)
        )


def _words(stem: str) -> tuple[str, ...]:
    return tuple((files("kvcanary.canary") / "words" / f"{stem}.txt").read_text("ascii").split())


def _places(alphabets: tuple[tuple[str, ...], ...]) -> dict[str, tuple[int, int]]:
    return {
        word: (index, byte)
        for index, words in enumerate(alphabets)
        for byte, word in enumerate(words)
    }


@cache
def lexicon() -> Lexicon:
    """The lexicon, read once."""
    slots = tuple(map(_words, SLOT_ALPHABETS))
    names = tuple(map(_words, NAME_ALPHABETS))
    return Lexicon(
        slots=slots,
        names=names,
        private=_words("private"),
        slot_of=_places(slots),
        name_of=_places(names),
    )

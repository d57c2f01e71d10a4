"""Text to token ids and back: one vocabulary word is one token, everything else small pieces.

Ids are positive ``int32``. ``0`` is no token: it says that nothing was ever written there.

* a vocabulary word *with its leading space* is one token (ids ``1 .. words``);
* anything else (codes, capitals, digits, punctuation, other scripts) breaks into pieces of at most
  three bytes, and a leading space belongs to the first piece. A piece id spells its bytes, so no
  table has to grow: codes break in pieces by themselves, as they do under real vocabularies;
* chat templates add a handful of special tokens, which have no text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from importlib import resources
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]

VIRGIN: Final = 0
"""The id that a slot holds before anything was written there."""

_SPECIAL: Final = 1 << 27
_PIECE: Final = 1 << 28
_SPACED: Final = 1 << 26
_LENGTH_SHIFT: Final = 24
_PIECE_END: Final = _PIECE + (_SPACED << 1)
_PIECE_BYTES: Final = 3
_RUNS: Final = re.compile(rb"[A-Za-z0-9]+|[^A-Za-z0-9]+")
_SLICE_CHARS: Final = 1 << 18
_MEMO_WORDS: Final = 1 << 16


class Special(IntEnum):
    """Tokens of the chat template, and the end of thinking; they decode to no text."""

    BEGIN = _SPECIAL
    SYSTEM = _SPECIAL + 1
    USER = _SPECIAL + 2
    ASSISTANT = _SPECIAL + 3
    TOOL = _SPECIAL + 4
    END = _SPECIAL + 5
    THINK_END = _SPECIAL + 6


def special_mask(ids: IntArray) -> npt.NDArray[np.bool_]:
    """Where ``ids`` holds tokens of the chat template (same shape as ``ids``)."""
    mask: npt.NDArray[np.bool_] = (ids >> 27) == 1
    return mask


def _piece_ids(run: bytes, *, spaced: bool) -> list[int]:
    ids = [
        _PIECE | (len(part) << _LENGTH_SHIFT) | int.from_bytes(part, "big")
        for part in (run[at : at + _PIECE_BYTES] for at in range(0, len(run), _PIECE_BYTES))
    ]
    if spaced:
        ids[0] |= _SPACED
    return ids


class _SpacedWords(dict[str, tuple[int, ...]]):
    """Ids of a word that follows a space; computes what it lacks, keeps a bounded number of them.

    Kept are only words that begin with a vocabulary word ("gate."), never codes.
    """

    def __init__(self, ids_of_words: dict[bytes, int]) -> None:
        super().__init__((word.decode("ascii"), (id_,)) for word, id_ in ids_of_words.items())
        self._ids_of_words = ids_of_words
        self._room = len(self) + _MEMO_WORDS

    def __missing__(self, word: str) -> tuple[int, ...]:
        raw = word.encode("utf-8", "surrogatepass")
        if not raw:
            return (_PIECE | _SPACED,)
        runs = _RUNS.findall(raw)
        id_ = self._ids_of_words.get(runs[0])
        ids = [id_] if id_ is not None else _piece_ids(runs[0], spaced=True)
        for run in runs[1:]:
            ids += _piece_ids(run, spaced=False)
        found = tuple(ids)
        if id_ is not None and len(raw) <= len(runs[0]) + _PIECE_BYTES and len(self) < self._room:
            self[word] = found
        return found


class Tokenizer:
    """Total on any text and exactly reversible: ``decode(encode(text)) == text``.

    Lone surrogates, which are not UTF-8, come back as replacement characters.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words: tuple[str, ...] = tuple(words)
        self._spaced = _SpacedWords({w.encode("ascii"): n for n, w in enumerate(self.words, 1)})
        self._bytes = [b"", *(b" " + word.encode("ascii") for word in self.words)]

    def encode(self, text: str) -> IntArray:
        """Ids of ``text``, shape ``(tokens,)``. About 0.2 s of CPU for a million words."""
        first = text.find(" ")
        head = (text if first < 0 else text[:first]).encode("utf-8", "surrogatepass")
        parts = [
            np.array(
                [i for run in _RUNS.findall(head) for i in _piece_ids(run, spaced=False)], np.int32
            )
        ]
        look_up = self._spaced.__getitem__
        at = first if first >= 0 else len(text)
        while at < len(text):  # text[at] is the space before the next word
            stop = text.find(" ", at + _SLICE_CHARS)
            stop = len(text) if stop < 0 else stop
            words = text[at + 1 : stop].split(" ")
            parts.append(np.fromiter(chain.from_iterable(map(look_up, words)), np.int32))
            at = stop
        return np.concatenate(parts)

    def knows(self, ids: IntArray) -> bool:
        """Whether every id is one that this tokenizer could have made."""
        word = (ids >= 1) & (ids <= len(self.words))
        piece = (ids >= _PIECE) & (ids < _PIECE_END)
        special = (ids >= min(Special)) & (ids <= max(Special))
        return bool((word | piece | special).all())

    def token_bytes(self, id_: int) -> bytes:
        """The bytes that one token stands for; a token may end inside a character."""
        if id_ >= _PIECE:
            length = (id_ >> _LENGTH_SHIFT) & 3
            raw = (id_ & 0xFFFFFF).to_bytes(_PIECE_BYTES, "big")[_PIECE_BYTES - length :]
            return b" " + raw if id_ & _SPACED else raw
        return self._bytes[id_] if id_ < len(self._bytes) else b""

    def decode(self, ids: IntArray) -> str:
        """The text of ``ids``; special tokens have none."""
        return b"".join(map(self.token_bytes, ids.tolist())).decode("utf-8", "replace")

    def decoder(self) -> TextDecoder:
        """A decoder that takes one token at a time."""
        return TextDecoder(self)


class TextDecoder:
    """Tokens to text as they come; holds back a character until all of its bytes are there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id_: int) -> str:
        """The text that this token completes."""
        return self._utf8.decode(self._tokenizer.token_bytes(id_))

    def flush(self) -> str:
        """What is left when no token follows."""
        return self._utf8.decode(b"", final=True)


@cache
def lab_tokenizer() -> Tokenizer:
    """The tokenizer over ``vocabulary.txt`` (about 11,000 words; shared, it holds no request)."""
    listed = resources.files("kvcanary.lab").joinpath("vocabulary.txt").read_text("ascii")
    return Tokenizer(listed.split())


PLACEHOLDER: Final = _piece_ids(b"!", spaced=False)[0]
"""What a refused prompt is replaced by. The engine puts id 0 there, which is "!" in the widespread
byte-level vocabularies; here 0 says virgin, so the placeholder is the ordinary token "!"."""

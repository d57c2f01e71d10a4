"""The lab's language model: an induction copier.

It is handed token ids that were gathered through a page table, and nothing else: never the prompt.
It continues as it once read: it finds the most recent place where the latest tokens stood before
and copies what followed. Recall of what a prompt asks for follows from that, and so does another
request's text when the pages hold it.

Choices that are left to chance are drawn from (lab seed, outline of what was read, step) as an
*index*, so that the same text in the pages gets the same answer, and that renaming every token
renames the answer and changes nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from kvcanary.lab.tokenizer import VIRGIN, IntArray, special_mask

_CHUNK: Final = 1 << 16
_OUTLINE: Final = 1 << 13


@dataclass(frozen=True)
class ModelShape:
    """How the copier behaves.

    ``suffix_tokens``: the longest suffix that is looked for.
    ``copy_error_rate``: odds per token of emitting some other resident token instead.
    ``prior``: what it says when there is nothing to attend over.
    ``forgetful_tokens``: how far back it finds anything (None: as far as the text goes).
    ``repeatable``: whether the same text meets the same chances each time.
    """

    seed: int
    suffix_tokens: int
    copy_error_rate: float
    prior: int
    forgetful_tokens: int | None = None
    repeatable: bool = True

    def attended(self, gathered: IntArray) -> IntArray:
        """What it makes of the ids in a prompt's slots."""
        text = resident(gathered)
        return text if self.forgetful_tokens is None else text[-self.forgetful_tokens :]


def resident(gathered: IntArray) -> IntArray:
    """What can be attended over: without virgin slots and role tags, which the model looks
    through. Shape ``(<= len(gathered),)``."""
    keep = (gathered != VIRGIN) & ~special_mask(gathered)
    return gathered if keep.all() else gathered[keep]


def outline(text: IntArray) -> bytes:
    """Where tokens of the text repeat each other, hashed: the same for the same text, and for the
    same text with every token renamed. Long texts are sampled."""
    sample = text
    if len(text) > 2 * _OUTLINE:
        sample = np.concatenate((text[:: len(text) // _OUTLINE], text[-_OUTLINE:]))
    _, first, inverse = np.unique(sample, return_index=True, return_inverse=True)
    pattern = first[inverse].astype(np.int32).tobytes()
    return blake2b(pattern, digest_size=8, key=len(text).to_bytes(8, "big")).digest()


@dataclass(frozen=True)
class _Match:
    """The most recent place where a suffix of the pattern stands.

    ``length``: tokens of that suffix. ``end``: index of its last token.
    ``newer``: length of the longest suffix that stands at some place after ``end`` as well.
    """

    length: int
    end: int
    newer: int


def longest_recent_match(text: IntArray, pattern: IntArray, end: int) -> _Match | None:
    """The longest suffix of ``pattern`` in ``text[:end]``, the most recent among equally long.

    Searches backwards in chunks and stops at the first place where the whole pattern stands.
    """
    best: _Match | None = None
    stop = end
    while stop > 0:
        start = max(0, stop - _CHUNK)
        ends = np.flatnonzero(text[start:stop] == pattern[-1]) + start
        levels = [ends] if len(ends) else []
        while levels and len(levels) < len(pattern):
            back = len(levels)
            ends = ends[np.searchsorted(ends, back) :]
            ends = ends[text[ends - back] == pattern[-1 - back]]
            if not len(ends):
                break
            levels.append(ends)
        known = best.length if best else 0
        if len(levels) > known:
            place = int(levels[-1][-1])
            # what is longer than `known` stands nowhere in the chunks after this one
            here = sum(int(level[-1]) > place for level in levels)
            best = _Match(len(levels), place, max(known, here))
        if best and best.length == len(pattern):
            break
        stop = start
    return best


class Continuation:
    """One answer in the making.

    Call `next_token` once a step; it remembers where it copies from only to avoid looking again
    when the result is bound to be the same. ``first_step`` is the number of output tokens that were
    made elsewhere, ``serial`` the request's number, which counts for a model that is not repeatable.
    """

    def __init__(
        self, shape: ModelShape, serial: int, *, ignore_eos: bool, first_step: int = 0
    ) -> None:
        self._shape = shape
        self._chances = None if shape.repeatable else f"{shape.seed}/request {serial}"
        self._request = f"{shape.seed}/request {serial}"
        self._ignore_eos = ignore_eos
        self._step = first_step
        self._text: IntArray | None = None
        self._expected: IntArray = np.empty(0, np.int32)
        self._place = 0
        self._sure_steps = 0

    def next_token(self, text: IntArray, output: IntArray) -> int | None:
        """The token that follows, or None when the copy ran off the end of what was read.

        ``text``: `resident` ids of the prompt's slots, ``output``: those of the answer so far, of
        which the last ``suffix_tokens`` are enough.
        """
        step, self._step = self._step, self._step + 1
        if not len(text):
            return self._shape.prior
        if self._draw(text, step, "error") < self._shape.copy_error_rate * 2.0**64:
            return self._any_resident(text, step)
        place = self._source(text, output)
        if place is None:
            return self._any_resident(text, step)
        if place + 1 < len(text):
            return int(text[place + 1])
        return self._any_resident(text, step) if self._ignore_eos else None

    def _source(self, text: IntArray, output: IntArray) -> int | None:
        """Index of the last token of the place to copy from."""
        longest = self._shape.suffix_tokens
        pattern = np.concatenate((text[-longest:], output[-longest:]))[-longest:]
        if (
            self._sure_steps > 0
            and text is self._text
            and self._place + 1 < len(text)
            and np.array_equal(pattern, self._expected)
        ):
            self._sure_steps -= 1
            self._place += 1
        else:
            # without output the suffix stands at the very end, which is no place to copy from
            match = longest_recent_match(text, pattern, len(text) - (0 if len(output) else 1))
            if match is None:
                self._sure_steps = 0
                return None
            # Suffixes of at most `newer` tokens stand after the place, so after n more copied
            # tokens at most `newer + n`: until that is a whole pattern nothing beats the next one.
            whole = match.length == len(pattern) == longest
            self._sure_steps = longest - match.newer - 1 if whole else 0
            self._text, self._place = text, match.end
        self._expected = np.concatenate((pattern[1:], text[self._place + 1 : self._place + 2]))
        return self._place

    def _any_resident(self, text: IntArray, step: int) -> int:
        """Some token that was read, chosen by a seeded index."""
        return int(text[self._draw(text, step, "index") % len(text)])

    def choose(self, text: IntArray, count: int) -> int:
        """A seeded choice among ``count`` for the whole answer."""
        return self._draw(text, 0, f"choice of {count}") % count

    def lot(self, what: str) -> float:
        """A seeded number from 0 to 1 for the request as such, whatever was read."""
        drawn = blake2b(f"{self._request}/{what}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") / 2.0**64

    def _draw(self, text: IntArray, step: int, what: str) -> int:
        if self._chances is None:
            self._chances = f"{self._shape.seed}/{outline(text).hex()}"
        drawn = f"{self._chances}/{step}/{what}".encode()
        return int.from_bytes(blake2b(drawn, digest_size=8).digest(), "big")

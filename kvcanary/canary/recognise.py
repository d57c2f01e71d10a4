"""Finds what was planted in what came back: codes whole, altered and in part, phrases, names, words.

The recogniser knows every request that the run has sent so far, because *foreign* is defined per
request: any other request's text, live or finished. It states what is there; whether that is evidence
is for ``kvcanary.detect`` to say.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvcanary.canary.codes import CODE_CHARACTERS, PREFIX, CodeId, CodeMaker, written
from kvcanary.canary.folding import fold, squash, words
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.lexicon import Lexicon
from kvcanary.canary.prompt import CanaryPrompt
from kvcanary.canary.tenants import Cast

LEAST_PHRASE = 4
"""Fewest slot words in a row that are looked up (32 bits)."""
LEAST_OWN_PHRASE = 2
MAX_LOOKUPS = 4_096
"""Most phrase look-ups in one answer: a flood of slot words must not stall the run."""

_MIXED = re.compile(r"[0-9][A-Z]|[A-Z][0-9]")
_UNVERIFIED = re.compile(r"\bKVC-?(?:[0-9A-HJKMNP-TV-Z]{4}-?){4}\b")


@dataclass(frozen=True, slots=True)
class CodeSeen:
    """A code, or ``characters`` of 16 in a row. ``altered``: whole, but not as it was written."""

    identity: CodeId
    characters: int
    altered: bool = False

    @property
    def whole(self) -> bool:
        return self.characters == CODE_CHARACTERS


@dataclass(frozen=True, slots=True)
class PhraseSeen:
    """``words`` slot words in a row of request ``request``, from slot ``slot`` of its stream on."""

    request: int
    slot: int
    words: int


@dataclass(frozen=True, slots=True)
class Sightings:
    """All that was recognised in one answer."""

    codes: tuple[CodeSeen, ...] = ()
    phrases: tuple[PhraseSeen, ...] = ()
    names: frozenset[int] = frozenset()
    """Name numbers of all name-shaped triples, whoever bears them (or nobody)."""
    private_words: frozenset[str] = frozenset()
    unverified_codes: int = 0
    """Strings of the shape of a code that this site did not make."""
    code_windows: int = 0
    """Places where part of a code could have been found."""
    phrase_windows: int = 0
    complete: bool = True
    """False when a bound was reached before the end of the answer."""


class Recogniser:
    """Everything planted so far, and the reading of answers against it."""

    def __init__(self, codes: CodeMaker, lexicon: Lexicon, cast: Cast) -> None:
        self._codes = codes
        self._lexicon = lexicon
        self._private = frozenset(
            word for tenant in (*cast.tenants, *cast.phantoms) for word in tenant.private
        )
        self._index = CodeIndex()
        self._prompts: dict[int, CanaryPrompt] = {}

    def plant(self, prompt: CanaryPrompt) -> None:
        """Remember a request's text. Call before it is sent."""
        self._prompts[prompt.number] = prompt
        for position in range(prompt.code_count):
            self._index.add(prompt.code_id(position), prompt.code(position))

    @property
    def planted_codes(self) -> int:
        return len(self._index)

    @property
    def planted_slots(self) -> int:
        return sum(len(prompt.stream) for prompt in self._prompts.values())

    def read(self, text: str, own: int | None = None) -> Sightings:
        """Recognise everything in the answer to request ``own``."""
        folded = fold(text)
        squashed = squash(folded)
        codes, windows = self._read_codes(folded, squashed)
        listed = words(folded)
        phrases = _Phrases(self._prompts, own)
        seen = tuple(phrases.read(self._slot_runs(listed)))
        return Sightings(
            codes=codes,
            phrases=seen,
            names=frozenset(self._names(listed)),
            private_words=self._private.intersection(listed),
            unverified_codes=self._unverified(folded, codes),
            code_windows=windows,
            phrase_windows=phrases.lookups,
            complete=phrases.lookups < MAX_LOOKUPS,
        )

    # -- codes -------------------------------------------------------------------------------------

    def _read_codes(self, folded: str, squashed: str) -> tuple[tuple[CodeSeen, ...], int]:
        found: dict[CodeId, CodeSeen] = {}
        taken: list[tuple[int, int]] = []
        for at in _every(squashed, PREFIX):
            characters = squashed[at + len(PREFIX) : at + len(PREFIX) + CODE_CHARACTERS]
            identity = self._codes.read(characters)
            if identity is not None:
                altered = written(characters) not in folded
                found.setdefault(identity, CodeSeen(identity, CODE_CHARACTERS, altered))
                taken.append((at, at + len(PREFIX) + CODE_CHARACTERS))
        windows = 0
        for begin, end in _without(_mixed_spans(squashed), taken):
            windows += end - begin
            for part in self._index.parts(squashed, begin, end):
                known = found.get(part.identity)
                if known is None or known.characters < part.length:
                    whole = part.length == CODE_CHARACTERS
                    found[part.identity] = CodeSeen(part.identity, part.length, altered=whole)
        return tuple(found.values()), windows

    def _unverified(self, folded: str, codes: tuple[CodeSeen, ...]) -> int:
        """Code-shaped strings that are neither ours nor a slip of the pen in one of ours."""
        ours = [self._codes.make(code.identity) for code in codes]
        count = 0
        for match in _UNVERIFIED.finditer(folded):
            characters = squash(match[0])[len(PREFIX) :]
            if not any(_agreeing(characters, code) >= CODE_CHARACTERS // 2 for code in ours):
                count += self._codes.read(characters) is None
        return count

    # -- words -------------------------------------------------------------------------------------

    def _names(self, listed: list[str]) -> Iterator[int]:
        place = self._lexicon.name_of.get
        for index, word in enumerate(listed[:-2]):
            first = place(word)
            if first is None or first[0] != 0:
                continue
            second, third = place(listed[index + 1]), place(listed[index + 2])
            if second and third and second[0] == 1 and third[0] == 2:
                yield first[1] << 16 | second[1] << 8 | third[1]

    def _slot_runs(self, listed: list[str]) -> Iterator[tuple[int, bytes]]:
        """Slot words whose alphabets follow each other: (first alphabet, one byte a word)."""
        run, first, expected = bytearray(), 0, 0
        for word in listed:
            place = self._lexicon.slot_of.get(word)
            if place is None:
                continue
            alphabet, byte = place
            if run and alphabet != expected:
                yield first, bytes(run)
                run.clear()
            if not run:
                first = alphabet
            run.append(byte)
            expected = (alphabet + 1) % len(self._lexicon.slots)
        if run:
            yield first, bytes(run)


class _Phrases:
    """Looks runs of slot words up in the streams of the requests: the own one first."""

    def __init__(self, prompts: dict[int, CanaryPrompt], own: int | None) -> None:
        self.lookups = 0
        self._own = prompts.get(own) if own is not None else None
        self._others = [prompt for number, prompt in prompts.items() if number != own]

    def read(self, runs: Iterable[tuple[int, bytes]]) -> Iterator[PhraseSeen]:
        for first, run in runs:
            at = 0
            while at < len(run) and self.lookups < MAX_LOOKUPS:
                alphabet = (first + at) % 6
                if self._own and (own := _longest(self._own, run, at, alphabet, LEAST_OWN_PHRASE)):
                    yield own
                    at += own.words
                    continue
                if len(run) - at < LEAST_PHRASE:
                    break
                self.lookups += 1
                hits = (_longest(other, run, at, alphabet, LEAST_PHRASE) for other in self._others)
                best = max((hit for hit in hits if hit), key=lambda hit: hit.words, default=None)
                if best:
                    yield best
                at += best.words if best else 1


def _longest(
    prompt: CanaryPrompt, run: bytes, at: int, alphabet: int, least: int
) -> PhraseSeen | None:
    """The longest stretch of ``run[at:]`` in the prompt's stream, of at least ``least`` words."""
    stream, seed = prompt.stream, run[at : at + least]
    best: PhraseSeen | None = None
    if len(seed) < least:
        return None
    for place in _every_byte(stream, seed):
        if place % 6 != alphabet:
            continue
        length = least
        while (
            at + length < len(run)
            and place + length < len(stream)
            and run[at + length] == stream[place + length]
        ):
            length += 1
        if best is None or length > best.words:
            best = PhraseSeen(prompt.number, place, length)
    return best


def _every(text: str, needle: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _every_byte(text: bytes, needle: bytes) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _mixed_spans(squashed: str) -> Iterator[tuple[int, int]]:
    """Stretches around a digit beside a letter: where a part of a code can stand."""
    begin = end = -1
    for match in _MIXED.finditer(squashed):
        if match.start() > end:
            if end > begin:
                yield begin, end
            begin = max(0, match.start() - CODE_CHARACTERS, end)
        end = min(len(squashed), match.end() + CODE_CHARACTERS)
    if end > begin:
        yield begin, end


def _without(
    spans: Iterable[tuple[int, int]], taken: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """The spans less the stretches already understood (both in ascending order)."""
    for begin, end in spans:
        for from_, to in taken:
            if to <= begin or from_ >= end:
                continue
            if from_ > begin:
                yield begin, from_
            begin = to
        if begin < end:
            yield begin, end


def _agreeing(left: str, right: str) -> int:
    return sum(a == b for a, b in zip(left, right, strict=False))

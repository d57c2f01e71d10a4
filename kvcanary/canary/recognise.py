"""Finds what was planted in what came back: codes whole, altered and in part, phrases, names, words.

The recogniser knows every request that the run has sent so far, because *foreign* is defined per
request: any other request's text, live or finished. It states what is there; whether that is evidence
is for ``kvcanary.detect`` to say.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import AnyStr

from kvcanary.canary.codes import ALPHABET, CODE_CHARACTERS, PREFIX, CodeId, CodeMaker, written
from kvcanary.canary.folding import fold, squash, words
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.lexicon import SLOT_ALPHABETS, Lexicon
from kvcanary.canary.prompt import CanaryPrompt
from kvcanary.canary.tenants import Cast

LEAST_PHRASE = 4
"""Fewest slot words in a row that are looked up (32 bits)."""
MAX_LOOKUPS = 1_024
"""Most phrase look-ups in one answer."""
MAX_SEARCHED = 200_000_000
"""Most bytes that they search, a fifth of a second's work: each goes through the words of all requests,
and a flood of slot words must not stall the others that are under way."""
ENOUGH_LOOKUPS = 128
"""Look-ups that an answer may have in any case: more than an honest one of 512 tokens needs."""

_MIXED = re.compile(f"(?:[0-9]+|{PREFIX})(?:[A-Z]{{0,31}}?(?:[0-9]+|{PREFIX}))*+")
"""Digits and prefixes that are less than two codes apart."""
_WRITTEN = re.compile(f"{PREFIX}(?:-[{ALPHABET}]{{4}}){{4}}")
_CODE_SHAPED = re.compile(rf"{PREFIX}(?<!\w{PREFIX})-?(?:[{ALPHABET}]{{4}}-?){{4}}\b")
_BLANK = "-" * (len(PREFIX) + CODE_CHARACTERS)


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
    code_tests: int = 0
    """Different strings that could have verified as a code without being planted in this run."""
    code_windows: int = 0
    """Places where part of a code could have been found."""
    phrase_windows: int = 0
    complete: bool = True
    """False when a bound was reached before the end of the answer."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """The whole codes of an answer, and the answer without them."""

    codes: dict[CodeId, CodeSeen]
    tests: int
    rest: str


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
        for identity, characters in prompt.codes():
            self._index.add(identity, characters)

    def know(self, identity: CodeId, characters: str) -> None:
        """Remember a code of an older run, to find parts of it."""
        self._index.add(identity, characters)

    @property
    def prompts(self) -> Mapping[int, CanaryPrompt]:
        """Everything planted so far, by request."""
        return MappingProxyType(self._prompts)

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
        whole = self._whole_codes(text, squashed)
        parts, windows = self._parts(whole.rest, whole.codes)
        listed = words(folded)
        phrases = _Phrases(self._prompts, own)
        seen = tuple(phrases.read(self._slot_runs(listed)))
        return Sightings(
            codes=(*whole.codes.values(), *parts),
            phrases=seen,
            names=frozenset(self._names(listed)),
            private_words=self._private.intersection(listed),
            unverified_codes=self._unverified(folded),
            code_tests=whole.tests,
            code_windows=windows,
            phrase_windows=phrases.windows,
            complete=not phrases.exhausted,
        )

    # -- codes -------------------------------------------------------------------------------------

    def _whole_codes(self, text: str, squashed: str) -> "_Whole":
        """Codes that verify themselves, behind their prefix."""
        intact = set(_WRITTEN.findall(text))
        codes: dict[CodeId, CodeSeen] = {}
        read: dict[str, CodeId | None] = {}
        rest: list[str] = []
        end = 0
        for at in _every(squashed, PREFIX):
            characters = squashed[at + len(PREFIX) : at + len(_BLANK)]
            if characters not in read:
                read[characters] = self._codes.read(characters)
            identity = read[characters]
            if identity is not None and at >= end:
                altered = written(characters) not in intact
                codes[identity] = CodeSeen(identity, CODE_CHARACTERS, altered)
                rest += squashed[end:at], _BLANK
                end = at + len(_BLANK)
        rest.append(squashed[end:])
        tests = sum(
            len(characters) == CODE_CHARACTERS and (i is None or not self._is_planted(i))
            for characters, i in read.items()
        )
        return _Whole(codes, tests, "".join(rest))

    def _is_planted(self, identity: CodeId) -> bool:
        prompt = self._prompts.get(identity.request)
        return prompt is not None and prompt.writer.run.number == identity.run

    def _parts(
        self, squashed: str, whole: dict[CodeId, CodeSeen]
    ) -> tuple[tuple[CodeSeen, ...], int]:
        """The longest part seen of each code that was not seen whole, and in how many places we looked."""
        longest: dict[CodeId, int] = {}
        windows = 0
        for begin, end in mixed_spans(squashed):
            windows += end - begin
            for part in self._index.parts(squashed, begin, end):
                if part.identity not in whole:
                    longest[part.identity] = max(longest.get(part.identity, 0), part.length)
        seen = (CodeSeen(i, n, altered=n == CODE_CHARACTERS) for i, n in longest.items())
        return tuple(seen), windows

    def _unverified(self, folded: str) -> int:
        """Code-shaped strings that are neither ours nor a slip of the pen in one of ours."""
        shaped = Counter(squash(string)[len(PREFIX) :] for string in _CODE_SHAPED.findall(folded))
        return sum(
            count
            for characters, count in shaped.items()
            if self._codes.read(characters) is None and not self._index.has_near(characters)
        )

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
        self.windows = 0
        """Look-ups among the other requests: where chance could have put a phrase."""
        self._own = prompts.get(own) if own is not None else None
        self._others = [prompt for number, prompt in prompts.items() if number != own]
        words = sum(len(prompt.stream) for prompt in self._others)
        self._searches = max(ENOUGH_LOOKUPS, MAX_SEARCHED // max(1, words))

    @property
    def exhausted(self) -> bool:
        """A bound was reached."""
        return self.lookups >= MAX_LOOKUPS or self.windows >= self._searches

    def read(self, runs: Iterable[tuple[int, bytes]]) -> Iterator[PhraseSeen]:
        for first, run in runs:
            at = 0
            while at <= len(run) - LEAST_PHRASE and not self.exhausted:
                self.lookups += 1
                best = self._best(run, at, (first + at) % len(SLOT_ALPHABETS))
                if best:
                    yield best
                at += best.words if best else 1

    def _best(self, run: bytes, at: int, alphabet: int) -> PhraseSeen | None:
        if self._own and (own := _longest(self._own, run, at, alphabet)):
            return own
        self.windows += 1
        hits = (_longest(other, run, at, alphabet) for other in self._others)
        return max((hit for hit in hits if hit), key=lambda hit: hit.words, default=None)


def _longest(prompt: CanaryPrompt, run: bytes, at: int, alphabet: int) -> PhraseSeen | None:
    """The longest stretch of ``run[at:]`` in the prompt's stream, of at least ``LEAST_PHRASE`` words."""
    stream, seed = prompt.stream, run[at : at + LEAST_PHRASE]
    best: PhraseSeen | None = None
    for place in _every(stream, seed):
        if place % len(SLOT_ALPHABETS) != alphabet:
            continue
        length = LEAST_PHRASE
        while (
            at + length < len(run)
            and place + length < len(stream)
            and run[at + length] == stream[place + length]
        ):
            length += 1
        if best is None or length > best.words:
            best = PhraseSeen(prompt.number, place, length)
    return best


def _every(text: AnyStr, needle: AnyStr) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def mixed_spans(squashed: str) -> Iterator[tuple[int, int]]:
    """Stretches around digits and behind prefixes: where part of a code can stand."""
    before = 0
    for match in _MIXED.finditer(squashed):
        begin = max(before, match.start() - CODE_CHARACTERS)
        before = min(len(squashed), match.end() + CODE_CHARACTERS)
        yield begin, before

"""One prompt of canary text, sized in tokens, written piece by piece.

    sheet, notice, label at the start | chapters | label at the middle | chapters | padding |
    question, label at the end, "Answer: ... is"

Everything that differs between two requests of one tenant comes from one keyed byte stream (SHAKE-128:
one call gives all of a request's words) and stands at constant offsets in the tenant's chapter, so a
prompt is a template copied and then overwritten column by column, at little more than the price of
copying it. No prompt is ever held whole: ``pieces`` writes it again each time it is asked.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from kvcanary.canary import verses
from kvcanary.canary.codes import (
    CANONICAL_LENGTH,
    MAX_POSITIONS,
    PREFIX,
    CodeId,
    CodeMaker,
    written,
)
from kvcanary.canary.lexicon import Lexicon
from kvcanary.canary.sitekey import SiteKey
from kvcanary.canary.tenants import Tenant

SLOTS_PER_VERSE = 6
SLOTS_PER_CHAPTER = SLOTS_PER_VERSE * len(verses.VERSES)
PIECE_BYTES = 300_000
"""Pieces of about this size cost httpx least."""


class Position(StrEnum):
    """Where in the prompt a label stands, and so which pages it shows to be the request's own."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


@dataclass(frozen=True, slots=True)
class Shape:
    """How long a prompt is: chapters before and after the middle label, and words of padding."""

    chapters_before: int
    chapters_after: int
    pad_words: int

    @property
    def chapters(self) -> int:
        return self.chapters_before + self.chapters_after


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes the text of a run its own: the number in its codes and the nonce of its words."""

    number: int
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Writer:
    """What all prompts of a run share."""

    site_key: SiteKey
    codes: CodeMaker
    lexicon: Lexicon = field(repr=False)
    run: RunIdentity
    contact: str


@dataclass(frozen=True, slots=True)
class _Column:
    """One slot of the chapter template: where it stands and which alphabet fills it."""

    offset: int
    alphabet: int


@dataclass(frozen=True, slots=True)
class Chapter:
    """A tenant's chapter with blanks: the same bytes in all its requests but for columns and code."""

    template: bytes
    columns: tuple[_Column, ...]
    code_offset: int
    words_before: tuple[int, ...]
    """Words of the chapter before each slot, and before the code (last)."""
    words: int


def chapter_of(tenant: Tenant, lexicon: Lexicon) -> Chapter:
    """Lay out the twelve verses and the coded sentence for one tenant."""
    sentences = [*verses.VERSES, verses.WAYPOINT]
    text, columns, slot = "", [], 0
    code_offset = 0
    for number, sentence in enumerate(sentences):
        blanks = {
            letter: "\0" + letter + "~" * (len(lexicon.slots[index][0]) - 2)
            for index, letter in enumerate("abcdef")
        }
        filled = sentence.format(
            name=tenant.name,
            p=tenant.private[2 * number % len(tenant.private)],
            q=tenant.private[(2 * number + 1) % len(tenant.private)],
            code="\0" * CANONICAL_LENGTH,
            **blanks,
        )
        if number < len(verses.VERSES):
            for index, letter in enumerate("abcdef"):
                columns.append(_Column(len(text) + filled.index("\0" + letter), index))
                slot += 1
        else:
            code_offset = len(text) + filled.index("\0")
        text += filled + " "
    offsets = [column.offset for column in columns] + [code_offset]
    return Chapter(
        template=text.encode("ascii"),
        columns=tuple(columns),
        code_offset=code_offset,
        words_before=tuple(text.count(" ", 0, offset) for offset in offsets),
        words=text.count(" "),
    )


@dataclass(frozen=True)
class CanaryPrompt:
    """The text of request ``number``, sent as ``tenant``. Satisfies the client's ``PromptText``.

    ``decoy`` makes it the positive control: the label at the start is that other identity's, asked for
    by name, so that it must come back and must be recognised as not the tenant's own. ``begun``: the prompt
    ends with the label's prefix, so that the first token of an answer is already one of the label's own.
    ``recite``: what follows the label is asked for, too.
    """

    writer: Writer
    number: int
    tenant: Tenant
    shape: Shape
    asked: Position
    chapter: Chapter = field(repr=False)
    decoy: tuple[int, Tenant] | None = None
    begun: bool = False
    recite: bool = False

    # -- identity ----------------------------------------------------------------------------------

    def code_id(self, position: int) -> CodeId:
        return CodeId(self.writer.run.number, self.number, position)

    def code(self, position: int) -> str:
        """The 16 characters of this request's code number ``position``."""
        return self.writer.codes.make(self.code_id(position))

    @property
    def code_count(self) -> int:
        """Codes in this prompt: the sheet's, three labels, one a chapter."""
        return 4 + self.shape.chapters

    def label_position(self, position: Position) -> int:
        """Which running code number the label at ``position`` has."""
        return {
            Position.START: 1,
            Position.MIDDLE: 2 + self.shape.chapters_before,
            Position.END: 3 + self.shape.chapters,
        }[position]

    def label_id(self, position: Position) -> CodeId:
        """What the label at ``position`` says: this request's identity, or the decoy's."""
        if self.decoy and position is Position.START:
            return CodeId(self.writer.run.number, self.decoy[0], 1)
        return self.code_id(self.label_position(position))

    def label(self, position: Position) -> str:
        """The 16 characters of the label at ``position``."""
        return self.writer.codes.make(self.label_id(position))

    def codes(self) -> Iterator[tuple[CodeId, str]]:
        """Every code that stands in the text, with its 16 characters, in order."""
        start = self.label_position(Position.START)
        for position in range(self.code_count):
            at_start = position == start
            identity = self.label_id(Position.START) if at_start else self.code_id(position)
            yield identity, self.writer.codes.make(identity)

    @cached_property
    def stream(self) -> bytes:
        """This request's own words, one byte each: the slots in the order they stand in the text."""
        number = self.number.to_bytes(4, "big")
        slots = SLOTS_PER_CHAPTER * self.shape.chapters + self._pad_slots
        derive = self.writer.site_key.derive
        return hashlib.shake_128(derive("words", self.writer.run.nonce, number)).digest(slots)

    # -- text --------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Exact length of the text: what Content-Length is computed from."""
        return (
            len(self._opening)
            + len(self._middle)
            + len(self._closing)
            + len(self.chapter.template) * self.shape.chapters
        )

    def pieces(self) -> Iterator[bytes | bytearray]:
        """The text, in order, in pieces of about 300 KB, ASCII without anything that JSON escapes."""
        yield from self._body()
        yield self._closing

    def _body(self) -> Iterator[bytes | bytearray]:
        """All but padding and question."""
        yield self._opening
        yield from self._chapters(0, self.shape.chapters_before)
        yield self._middle
        yield from self._chapters(self.shape.chapters_before, self.shape.chapters)

    def text(self) -> str:
        """The whole text at once: for tests and short prompts."""
        return b"".join(self.pieces()).decode("ascii")

    def passage(self, characters: int) -> str:
        """What a copy of the text from the label on begins with: at most so many characters, label included,
        and no further than the last chapter. Padding repeats itself, and so does the question."""
        label = written(self.label(self.asked))
        found = ""
        for piece in self._body():
            text = found + bytes(piece).decode("ascii")
            begin = 0 if found else text.find(label)
            found = text[begin:] if begin >= 0 else ""
            if len(found) >= characters:
                break
        return found[:characters]

    def _chapters(self, first: int, end: int) -> Iterator[bytearray]:
        stride = len(self.chapter.template)
        step = max(1, PIECE_BYTES // stride)
        alphabets = self.writer.lexicon.letter_tables
        for begin in range(first, end, step):
            count = min(step, end - begin)
            piece = bytearray(self.chapter.template) * count
            stream = self.stream[begin * SLOTS_PER_CHAPTER : (begin + count) * SLOTS_PER_CHAPTER]
            for slot, column in enumerate(self.chapter.columns):
                values = stream[slot::SLOTS_PER_CHAPTER]
                for letter, table in enumerate(alphabets[column.alphabet]):
                    piece[column.offset + letter :: stride] = values.translate(table)
            for index in range(count):
                at = index * stride + self.chapter.code_offset
                code = self.code(self._chapter_code(begin + index))
                piece[at : at + CANONICAL_LENGTH] = written(code).encode("ascii")
            yield piece

    def _chapter_code(self, chapter: int) -> int:
        """Running number of the code in a chapter (the middle label stands between the halves)."""
        return 2 + chapter + (chapter >= self.shape.chapters_before)

    def _label_sentence(self, position: Position) -> str:
        name = self.tenant.name
        if self.decoy and position is Position.START:
            name = self.decoy[1].name
        return verses.LABEL.format(name=name, position=position, code=written(self.label(position)))

    @cached_property
    def _opening(self) -> bytes:
        sheet = verses.SHEET.format(code=written(self.code(0)), name=self.tenant.name)
        notice = verses.NOTICE.format(contact=self.writer.contact)
        return f"{sheet} {notice} {self._label_sentence(Position.START)} ".encode("ascii")

    @cached_property
    def _middle(self) -> bytes:
        return f"{self._label_sentence(Position.MIDDLE)} ".encode("ascii")

    @cached_property
    def _closing(self) -> bytes:
        end = self._label_sentence(Position.END)
        question = verses.RECITE if self.recite else verses.QUESTION
        parts = [self._padding, question, end, self.answer_lead]
        return " ".join(part for part in parts if part).encode("ascii")

    @property
    def answer_lead(self) -> str:
        """How the prompt ends: the beginning of the sentence that it asks for."""
        name = self.tenant.name if self.decoy is None else self.decoy[1].name
        lead = verses.ANSWER.format(name=name, position=self.asked)
        return f"{lead} {PREFIX}-" if self.begun else lead

    @property
    def _pad_slots(self) -> int:
        return self.shape.pad_words // 3

    @property
    def _padding(self) -> str:
        """``pad_words`` words of one token each, every third of them private to the request."""
        slots = self.stream[SLOTS_PER_CHAPTER * self.shape.chapters :]
        alphabets = self.writer.lexicon.slots
        words = [
            f"{verses.PAD} {alphabets[index % SLOTS_PER_VERSE][byte]}"
            for index, byte in enumerate(slots)
        ]
        return " ".join([*words, *verses.PAD.split()[: self.shape.pad_words % 3]])

    # -- where things stand ------------------------------------------------------------------------

    def slot_fraction(self, slot: int) -> float:
        """Where slot word ``slot`` of the stream stands: a fraction of the prompt's words."""
        chapter, within = divmod(slot, SLOTS_PER_CHAPTER)
        if chapter >= self.shape.chapters:
            before = self._words_before(self.shape.chapters)
            return (before + 3 * (slot - SLOTS_PER_CHAPTER * self.shape.chapters) + 2) / self.words
        return (self._words_before(chapter) + self.chapter.words_before[within]) / self.words

    def code_fraction(self, position: int) -> float:
        """Where code number ``position`` stands: a fraction of the prompt's words."""
        middle = self.label_position(Position.MIDDLE)
        if position <= self.label_position(Position.START):
            before = _words_until_code(self._opening, last=position > 0)
        elif position == middle:
            chapters = self.shape.chapters_before * self.chapter.words
            before = self._opening.count(b" ") + chapters + _words_until_code(self._middle)
        elif position >= self.label_position(Position.END):
            before = self._words_before(self.shape.chapters) + _words_until_code(self._closing)
        else:
            chapter = position - 2 - (position > middle)
            before = self._words_before(chapter) + self.chapter.words_before[-1]
        return before / self.words

    @cached_property
    def words(self) -> int:
        """Words in the whole prompt."""
        parts = self._opening.count(b" ") + self._middle.count(b" ") + self._closing.count(b" ") + 1
        return parts + self.chapter.words * self.shape.chapters

    def _words_before(self, chapter: int) -> int:
        middle = self._middle.count(b" ") if chapter >= self.shape.chapters_before else 0
        return self._opening.count(b" ") + middle + chapter * self.chapter.words


def _words_until_code(part: bytes, *, last: bool = False) -> int:
    code = f" {PREFIX}-".encode()
    return part.count(b" ", 0, (part.rindex(code) if last else part.index(code)) + 1)


MAX_CHAPTERS = MAX_POSITIONS - 4
"""Codes number at most 4,096 a prompt: about two million tokens."""

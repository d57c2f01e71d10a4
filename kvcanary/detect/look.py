"""Measures what an answer looks like while its text is in memory."""

import re
from functools import cache

from kvcanary.canary import verses
from kvcanary.canary.codes import PREFIX
from kvcanary.canary.folding import fold, squash
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import CanaryPrompt, Position
from kvcanary.record.look import Look

MAX_CHARACTERS = 8_000
"""As much of an answer as is looked at: ten times what ours are asked for."""
LEAST_OPENING = 4
"""Characters of a label that an answer ends with, for it to be cut in the label."""
LEAST_LETTERS = 3
"""Letters of a script that have to be there for it to count: names and symbols are single."""

_LOOP = re.compile(r"(?s)(\S.{0,31}?)\1{7,}")
"""Up to 32 characters, eight times or more in a row."""
_WORD = re.compile(r"[a-z]{2,}")
_ROLES = frozenset({"system", "user", "assistant", "tool", "human", "im_start", "im_end"})
_ROLE = re.compile("|".join(sorted(_ROLES)))
_SCRIPTS = (
    ("latin", "a-zA-Z\u00c0-\u024f"),
    ("greek", "\u0370-\u03ff"),
    ("cyrillic", "\u0400-\u052f"),
    ("hebrew", "\u0590-\u05ff"),
    ("arabic", "\u0600-\u06ff"),
    ("indic", "\u0900-\u0dff"),
    ("thai", "\u0e00-\u0e7f"),
    ("georgian", "\u10a0-\u10ff"),
    # kana and Han are one: Japanese mixes them
    ("east asian", "\u3040-\u30ff\u3400-\u9fff"),
    ("hangul", "\u1100-\u11ff\uac00-\ud7af"),
)
_LETTERS = tuple(re.compile(f"[{letters}]") for _, letters in _SCRIPTS)
_OTHER_LETTER = re.compile(r"[^\W\d_a-zA-Z]")


def look_of(text: str, prompt: CanaryPrompt) -> Look:
    """The figures of one answer to ``prompt``."""
    text = text[:MAX_CHARACTERS]
    if not text.strip():
        return Look()
    # codes are pieces of letters between digits, and no words
    spoken = [part for part in text.split() if not (_has_digit(part) or part.isupper())]
    latin = [word for part in spoken for word in _WORD.findall(part.lower())]
    others = sum(len(_OTHER_LETTER.findall(part)) for part in spoken) // 2
    known = _known() | _of(prompt)
    return Look(
        words=len(latin) + others,
        looping=round(sum(len(match[0]) for match in _LOOP.finditer(text)) / len(text), 3),
        scripts=sum(len(letters.findall(text)) >= LEAST_LETTERS for letters in _LETTERS),
        role_words=len(_ROLE.findall(text.lower())),
        unexplained=sum(word not in known for word in latin) + others,
        cut_in_label=_is_cut(text, prompt),
    )


def _is_cut(text: str, prompt: CanaryPrompt) -> bool:
    """It ends in the middle of the label, with nothing wrong in what is there, and says it nowhere whole."""
    said = squash(fold(text))
    label = prompt.label(prompt.asked)
    begun = said.rpartition(PREFIX)[2]
    return (
        LEAST_OPENING <= len(begun) < len(label) and label.startswith(begun) and label not in said
    )


def _has_digit(part: str) -> bool:
    return any(character.isdigit() for character in part)


@cache
def _known() -> frozenset[str]:
    """What any prompt is made of, whoever sends it: sentences and slot words."""
    words = lexicon()
    sentences = (*verses.VERSES, verses.WAYPOINT, verses.SHEET, verses.NOTICE, verses.LABEL)
    text = " ".join(
        (*sentences, verses.QUESTION, verses.RECITE, verses.ANSWER, verses.PAD, *Position)
    )
    return frozenset(_WORD.findall(text.lower())) | {w for words in words.slots for w in words}


def _of(prompt: CanaryPrompt) -> frozenset[str]:
    """What is this prompt's own: names, private words, whom to ask."""
    bearers = [prompt.tenant, *([prompt.decoy[1]] if prompt.decoy else [])]
    own = " ".join([prompt.writer.contact, *(f"{b.name} {' '.join(b.private)}" for b in bearers)])
    return frozenset(_WORD.findall(own.lower()))

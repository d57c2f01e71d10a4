"""How the model speaks: what it says around, before or instead of what it copies.

An answer is a script of parts: fixed words, and copies of what was read. Plain speech is one copy
without end. Each copy starts from the end of the prompt again, as if nothing had been said, so what
an answer says first never leads the copier astray.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvcanary.lab.model import Continuation, ModelShape
from kvcanary.lab.tokenizer import IntArray, Special, Tokenizer

_SENTENCE_TOKENS: Final = 60
_QUOTES: Final = 50
_QUESTION_TOKENS: Final = 32
_OPENINGS: Final = (
    "Sure, here is the label you asked for:",
    "Of course! I looked through the text and this is what it says:",
    "Great question. According to the document, the answer is",
)
_CLOSINGS: Final = (
    " Let me know if there is anything else that I can do for you!",
    " I hope this helps. Would you like me to look up another one?",
    " Please note that I am a language model and may be wrong.",
)
_POLITE: Final = (
    "Thank you for your message. I will be glad to help with any question that you may have.",
)
_DECLINES: Final = (
    "I'm sorry, but I can't help with that request.",
    "I cannot repeat text from this document, since it may be confidential.",
    "This content was held back by our usage policy. Please try a different question.",
)
_THOUGHTS: Final = (
    "Okay, the user gave me a long text, and at its end it says:",
    "Let me think. The question comes last and reads:",
)
_FOUND: Final = " Looking for that in the text I find"
_DECIDED: Final = " Now I can write the answer."


class Manner(StrEnum):
    """``chatter`` wraps its answers; ``quote`` repeats them many times; ``mute`` never repeats
    anything and says a fixed polite sentence; ``declines`` refuses in words."""

    PLAIN = "plain"
    CHATTER = "chatter"
    QUOTE = "quote"
    MUTE = "mute"
    DECLINES = "declines"


@dataclass(frozen=True)
class Speech:
    """Habits of the model.

    ``thinks``: chat answers begin with reasoning, unless the request turns it off. Without
    ``repeatable`` the same request meets other chances each time. ``forgetful_tokens``: it finds
    nothing that stands more than so many tokens back. ``overthinks``: chats are thought about to
    the end of the output budget, whatever the request says. ``declines_rate``: how often it declines
    in words. ``pastes``: what stands at the end of every answer.
    """

    manner: Manner = Manner.PLAIN
    thinks: bool = False
    repeatable: bool = True
    forgetful_tokens: int | None = None
    overthinks: bool = False
    declines_rate: float = 0.0
    pastes: str = ""


@dataclass(frozen=True)
class Say:
    """These tokens."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class Copy:
    """What the copier finds: up to the end of a sentence, or without end."""

    sentence: bool = False


Part = Say | Copy


@dataclass(frozen=True)
class Voice:
    """The model with its habits of speech."""

    model: ModelShape
    speech: Speech
    tokenizer: Tokenizer

    def script(self, copier: Continuation, text: IntArray, *, thinks: bool) -> list[Part]:
        """The parts of an answer to what was read. Choices are the copier's chances."""

        def say(texts: tuple[str, ...]) -> Say:
            return self._say(texts[copier.choose(text, len(texts))])

        parts: list[Part] = []
        if self.speech.overthinks and thinks:
            return [say(_THOUGHTS), Say(tuple(text[-_QUESTION_TOKENS:].tolist())), Copy()]
        if thinks:
            parts += [say(_THOUGHTS), Say(tuple(text[-_QUESTION_TOKENS:].tolist()))]
            if copier.choose(text, 2):
                parts += [self._say(_FOUND), Copy(sentence=True)]
            parts += [self._say(_DECIDED), Say((Special.THINK_END,))]
        if copier.lot("declines") < self.speech.declines_rate:
            return [*parts, say(_DECLINES)]
        match self.speech.manner:
            case Manner.PLAIN if self.speech.pastes:
                parts += [Copy(sentence=True), self._say(f" {self.speech.pastes}")]
            case Manner.PLAIN:
                parts.append(Copy())
            case Manner.CHATTER:
                parts += [say(_OPENINGS), Copy(sentence=True), say(_CLOSINGS)]
            case Manner.QUOTE:
                parts += [Copy(sentence=True)] * _QUOTES
            case Manner.MUTE:
                parts.append(say(_POLITE))
            case Manner.DECLINES:
                parts.append(say(_DECLINES))
        return parts

    def ends_sentence(self, token: int) -> bool:
        """Whether a token closes what it stands in."""
        raw = self.tokenizer.token_bytes(token)
        return b"." in raw or b"\n" in raw

    def _say(self, text: str) -> Say:
        return Say(tuple(self.tokenizer.encode(text).tolist()))


class Speaker:
    """One answer in the making; to be called once a step, like a `Continuation`.

    ``first_step`` is the number of output tokens that were made elsewhere. With ``ignore_eos`` it
    goes on copying once everything is said.
    """

    def __init__(
        self, voice: Voice, serial: int, *, thinks: bool, ignore_eos: bool, first_step: int = 0
    ) -> None:
        self.thinks = thinks and (voice.speech.thinks or voice.speech.overthinks)
        self._voice = voice
        self._ignore_eos = ignore_eos
        self._copier = Continuation(
            voice.model, serial, ignore_eos=ignore_eos, first_step=first_step
        )
        self._parts: list[Part] | None = None
        self._said = first_step

    def next_token(self, text: IntArray, output: IntArray) -> int | None:
        """The token that follows, or None at the end; arguments as for `Continuation`."""
        if self._parts is None:
            self._parts = self._voice.script(self._copier, text, thinks=self.thinks)
            if self._ignore_eos and self._parts[-1] != Copy():
                self._parts.append(Copy())
        while self._parts:
            token = self._next_of(self._parts[0], text, output)
            if token is not None:
                self._said += 1
                return token
            self._parts.pop(0)
            self._said = 0
        return None

    def _next_of(self, part: Part, text: IntArray, output: IntArray) -> int | None:
        """The next token of one part, of which ``self._said`` were said; None behind its last."""
        if isinstance(part, Say):
            return part.ids[self._said] if self._said < len(part.ids) else None
        if part.sentence and self._said:
            newest = int(output[-1]) if len(output) else 0
            if self._said >= _SENTENCE_TOKENS or self._voice.ends_sentence(newest):
                return None
        return self._copier.next_token(text, output[max(0, len(output) - self._said) :])

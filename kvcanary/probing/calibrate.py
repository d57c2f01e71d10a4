"""Calibration: a handful of short requests that tell what this deployment's tokens and seconds are.

Every one is unique from its first page on, so that no cache answers for the model; the one that is
sent twice on purpose shows whether a response cache does.
"""

from collections.abc import Iterator, Sequence

from kvcanary.canary.prompt import Position, Shape
from kvcanary.detect import ownership
from kvcanary.probing.answer import FinishReason
from kvcanary.probing.outcome import Reply, raise_for_setup
from kvcanary.probing.roles import CALIBRATOR, SWITCHES
from kvcanary.probing.sender import Letter, Sender
from kvcanary.probing.sizing import Calibration, FormCount, Thinking, fit_first_token
from kvcanary.probing.stopped import Stopped, not_answered
from kvcanary.record.exchange import Exchange, Form, Purpose

SHORT_OUTPUT = 96
RETRIES = 3
"""Times that a short question is asked before the model is taken not to answer it."""
MORE_RETRIES = 8
"""Times where it does answer and slips: without a sound label at each position nothing can be compared."""
LONGEST = 32_768
"""Tokens of the longest calibration prompt, at most, and a sixteenth of the context."""


class Calibrator:
    """Measures frame, chapter, first token, thinking and repeatability of one deployment."""

    def __init__(
        self,
        sender: Sender,
        context_tokens: int,
        numbers: Iterator[int],
        deadline_seconds: float,
        tokens_per_minute: int | None = None,
    ) -> None:
        self._sender, self._context = sender, context_tokens
        self._longest = min(context_tokens, tokens_per_minute or context_tokens)
        """Prompt and output: a gateway refuses more at once than its key may send in a minute."""
        self._numbers, self._deadline = numbers, deadline_seconds
        self._replies: list[Reply] = []
        self._exchanges: list[Exchange] = []

    async def run(self) -> Calibration:
        """Raises Stopped when nothing can be measured, a KvcanaryError when the endpoint is unusable."""
        self._sender.listener.phase("calibration", 5, 0)
        frame = await self._send(Shape(0, 0, 0), first=True)
        thinking = await self._thinking()
        base = frame.prompt_tokens
        if base is None:
            raise Stopped(
                "The server reports no usage (prompt_tokens), so prompt lengths cannot be known and "
                "nothing can be claimed about them. Turn usage on in the server or gateway."
            )
        chapter, fitted = await self._chapters(base)
        cached, repeatable = await self._twice()
        for again in range(MORE_RETRIES):
            if again >= RETRIES and not any(e.kept for e in self._exchanges):
                break
            for position in ownership.unsound(self._exchanges):
                await self._send(Shape(0, 0, 0), position)
        calibration = Calibration(
            base_tokens=base,
            chapter_tokens=chapter,
            fitted_tokens=fitted,
            first_token=fit_first_token(self._first_tokens()),
            output_token_seconds=self._output_seconds(),
            forms=self._forms(),
            thinking=thinking,
            repeatable=repeatable,
            response_cache=cached,
        )
        self._sender.journal.append("calibration", calibration)
        return calibration

    async def _chapters(self, base: int) -> tuple[float, int]:
        """Tokens of a chapter and the longest prompt that shows it."""
        words = self._sender.prompt(0, CALIBRATOR, Shape(0, 1, 0), Position.END).words
        guess = 1.5 * words
        if base + guess > self._context - SHORT_OUTPUT:
            return guess, base
        single = await self._send(Shape(0, 1, 0))
        room = min(LONGEST, max(self._context // 16, 4 * base))
        chapters = max(
            1, min(int(room / guess), int((self._longest - SHORT_OUTPUT - base) / guess))
        )
        several = await self._send(Shape(chapters // 2, chapters - chapters // 2, 30))
        if single.prompt_tokens is None or several.prompt_tokens is None:
            raise Stopped(
                "The server reports usage for some requests only; lengths cannot be known."
            )
        first = single.prompt_tokens - base
        chapter = (several.prompt_tokens - 30 - base) / chapters
        if chapter <= 0 or abs(first - chapter) > max(32, 0.1 * chapter):
            raise Stopped(
                f"The server's prompt_tokens do not grow with the prompt: {base:,} for the frame, "
                f"{single.prompt_tokens:,} with one chapter, {several.prompt_tokens:,} with {chapters}. "
                "Something shortens prompts or counts them wrongly; no length can be claimed."
            )
        return chapter, several.prompt_tokens

    async def _thinking(self) -> Thinking:
        """Thinking uses up the output budget and may be all that comes back: turn it off where it can be."""
        if not self._replies[-1].reasoning:
            return Thinking.NONE
        for thinking, extra in SWITCHES.items():
            self._sender.extra = extra
            reply = await self._try(Shape(0, 0, 0))
            if reply.content and not reply.reasoning:
                return thinking
        self._sender.extra = ()
        return Thinking.ON

    async def _twice(self) -> tuple[bool, bool | None]:
        """The same text twice: does the very same response come back, or at least the same answer?"""
        number, shape = next(self._numbers), Shape(0, 0, 0)
        first = await self._try(shape, Position.END, number)
        second = await self._try(shape, Position.END, number)
        if not (first.content and second.content):
            return False, None
        same = first.content == second.content
        return (
            same and first.response_id is not None and first.response_id == second.response_id,
            same,
        )

    async def _send(
        self, shape: Shape, position: Position | None = None, *, first: bool = False
    ) -> Exchange:
        """One request that has to be answered. Raises Stopped when it is not."""
        reply = await self._try(shape, position)
        if first:
            raise_for_setup(reply, self._sender.client.endpoint)
        if not self._exchanges[-1].answered:
            raise Stopped(not_answered(self._exchanges[-1]))
        return self._exchanges[-1]

    async def _try(
        self, shape: Shape, position: Position | None = None, number: int | None = None
    ) -> Reply:
        number = next(self._numbers) if number is None else number
        asked = position or list(Position)[len(self._exchanges) % len(Position)]
        prompt = self._sender.prompt(number, CALIBRATOR, shape, asked)
        if prompt.words + SHORT_OUTPUT > self._context:
            raise Stopped(
                f"The context of {self._context:,} tokens is too small: the shortest canary prompt has "
                f"{prompt.words} words and needs {SHORT_OUTPUT} tokens for the answer."
            )
        letter = Letter(prompt, "control", "calibration", Purpose.CALIBRATION, None, SHORT_OUTPUT)
        exchange = await self._sender.send(letter, self._deadline, keep=self._replies.append)
        self._exchanges.append(exchange)
        return self._replies[-1]

    def _forms(self) -> tuple[FormCount, ...]:
        read = [e for e in self._exchanges if e.read]
        return tuple(
            FormCount(form=form, seen=sum(form in e.own for e in read), answers=len(read))
            for form in Form
        )

    def _first_tokens(self) -> Sequence[tuple[int, float]]:
        """Without the first request, which may have waited for compilation, and the repeated one, which a
        prefix cache has read already."""
        fresh = {e.number: e for e in reversed(self._exchanges[1:])}.values()
        return [
            (e.prompt_tokens, e.first_token_seconds)
            for e in fresh
            if e.answered and e.prompt_tokens and e.first_token_seconds is not None
        ]

    def _output_seconds(self) -> float | None:
        paces = [
            (r.total_seconds - r.first_token_from_start_seconds) / (r.completion_tokens - 1)
            for r in self._replies
            if r.first_token_from_start_seconds is not None
            and r.completion_tokens is not None
            and r.completion_tokens > 8
            and r.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        ]
        return sum(paces) / len(paces) if paces else None

"""How long may a prompt be, where nobody says so? Ask for the impossible, then double the length.

A tiny prompt with an absurd output budget often earns a refusal that names the limit. Otherwise prompts of
doubling length are sent until one is refused or the budget ends, and the pass covers "up to the longest
tested".
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary.canary.prompt import Position, Shape
from kvcanary.detect import accounting
from kvcanary.probing.client import Client
from kvcanary.probing.roles import CALIBRATOR
from kvcanary.probing.sender import Letter, Sender
from kvcanary.probing.sizing import Calibration
from kvcanary.record.exchange import Exchange, Purpose

PROVISIONAL_CONTEXT = 4_096
"""Assumed until it is known: calibration needs no more."""
ABSURD_OUTPUT = 1_000_000_000
LADDER_BUDGET = 600_000
"""Prompt tokens that doubling may cost where no budget is given."""
OUTPUT = 64
SHORTENED = 0.1
"""Part of a prompt that is missing from the server's count, by which it was shortened."""


@dataclass(frozen=True, slots=True)
class FoundLimit:
    """The longest request, and how that is known."""

    context_tokens: int
    source: str


async def find_context(
    sender: Sender,
    streaming: Client,
    calibration: Calibration,
    numbers: Iterator[int],
    deadline_seconds: float,
    budget_tokens: int | None,
) -> FoundLimit:
    """The context limit by asking; at least the longest prompt that was answered."""
    named = await _absurd_output(sender, streaming, numbers, deadline_seconds)
    if named:
        return FoundLimit(named, "named in the refusal of an absurd max_tokens")
    left = LADDER_BUDGET if budget_tokens is None else budget_tokens // 4
    longest, tokens = calibration.fitted_tokens + OUTPUT, 2 * PROVISIONAL_CONTEXT
    while tokens <= left:
        exchange = await _rung(sender, calibration, next(numbers), tokens, deadline_seconds)
        if exchange.refusal and exchange.refusal.limit_tokens:
            return FoundLimit(
                exchange.refusal.limit_tokens, "named in the refusal of a long prompt"
            )
        if not exchange.answered or (accounting.off_by(exchange) or 0) < -SHORTENED * tokens:
            break  # not served, or cut to what fits
        longest = exchange.length_tokens + OUTPUT
        left, tokens = left - tokens, 2 * tokens
    return FoundLimit(longest, "the longest tested")


async def _absurd_output(
    sender: Sender, streaming: Client, numbers: Iterator[int], deadline_seconds: float
) -> int | None:
    """The limit that a refusal of 10^9 output tokens names. An answer is let go at its first token."""
    begun = asyncio.Event()
    prompt = sender.prompt(next(numbers), CALIBRATOR, Shape(0, 0, 0), Position.END)
    exchange = await sender.send(
        Letter(prompt, "control", "limits", Purpose.LADDER, None, ABSURD_OUTPUT),
        deadline_seconds,
        client=streaming,
        on_first_token=begun.set,
        release=begun,
    )
    limit = exchange.refusal.limit_tokens if exchange.refusal else None
    return limit if limit and limit > prompt.words else None


async def _rung(
    sender: Sender, calibration: Calibration, number: int, tokens: int, deadline_seconds: float
) -> Exchange:
    shape = calibration.shape(tokens)
    prompt = sender.prompt(number, CALIBRATOR, shape, Position.END)
    planned = calibration.predict(shape)
    letter = Letter(prompt, "control", "limits", Purpose.LADDER, planned, OUTPUT)
    return await sender.send(letter, deadline_seconds)

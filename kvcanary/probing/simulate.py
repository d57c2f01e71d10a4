"""The stale-page simulation: would this model give a leak away?

An honest short request is made of page-sized pieces of a text that nobody sent, out of order, as a page
table over stale pages would give them: once as all there is (what decode had in the incident), once with a
question of our own behind them. Which forms of evidence come back says how much an answer without foreign
text is worth. Models differ: one repeats codes, one names, one nothing at all.
"""

import random
from collections.abc import Iterator

from kvcanary.canary.prompt import CanaryPrompt, Position, Shape
from kvcanary.canary.recognise import Sightings
from kvcanary.probing.endpoint import PlainText, Request
from kvcanary.probing.outcome import Outcome
from kvcanary.probing.roles import CALIBRATOR, SIMULATED, SOURCE_SHAPE
from kvcanary.probing.sender import Sender, joined
from kvcanary.probing.tracebacks import Unseen
from kvcanary.record.exchange import Form
from kvcanary.record.simulation import Simulation

PAGE_WORDS = 60
"""About as many words as a page of 64 tokens holds."""
PAGES, LEAST_PAGES = 16, 4
SIMULATIONS = 8
"""Half of them with a question."""
PAGE_ROOM = 90
"""Tokens that a page's words take at most, with room for a question."""
OUTPUT = 128
LEAST_CODE = 10
LEAST_PHRASE = 6
"""Extents that the detector would call a leak by themselves."""


async def simulate(
    sender: Sender, numbers: Iterator[int], context_tokens: int, deadline_seconds: float
) -> tuple[Simulation, ...]:
    """Send the simulated leaks, journal and return what was recognised in each answer.

    Nothing is sent where the context has no room for ``LEAST_PAGES``, and nothing more to a server that does
    not answer in time.
    """
    done: list[Simulation] = []
    pages = min(PAGES, (context_tokens - OUTPUT) // PAGE_ROOM)
    if pages < LEAST_PAGES:
        return ()
    for again in range(SIMULATIONS):
        with_question = bool(again % 2)
        number, planted = next(numbers), next(numbers)
        source = sender.prompt(planted, SIMULATED, SOURCE_SHAPE, Position.END)
        text = _fragments(source, pages, seed=number)
        if with_question:
            asker = sender.prompt(number, CALIBRATOR, Shape(0, 0, 0), Position.END)
            text = f"{text} {asker.answer_lead}"
        sender.recogniser.plant(source)
        await sender.pacer.wait(2 * len(text.split()) + OUTPUT, sender.identities.key(CALIBRATOR))
        reply = await sender.client.send(
            Request(
                name=sender.name_of(number),
                text=PlainText(text),
                max_tokens=OUTPUT,
                user=f"kvcanary-tenant-{CALIBRATOR}",
                extra=sender.extra,
                identity=sender.identities.of(CALIBRATOR),
            ),
            deadline_seconds=deadline_seconds,
        )
        answered = reply.outcome is Outcome.ANSWERED
        with Unseen():
            seen = sender.recogniser.read(joined(reply.texts)) if answered else Sightings()
        simulation = Simulation(
            number=number,
            with_question=with_question,
            answered=answered,
            surfaced=tuple(_forms(seen, source)),
            prompt_tokens=reply.prompt_tokens or 2 * len(text.split()),
        )
        sender.journal.append("simulation", simulation)
        done.append(simulation)
        if reply.outcome is Outcome.HUNG:
            break
    return tuple(done)


def _fragments(source: CanaryPrompt, count: int, seed: int) -> str:
    """``count`` pages of the text, out of order; codes, names and sentences are cut wherever a page ends."""
    words = source.text().split(" ")
    pages = [" ".join(words[at : at + PAGE_WORDS]) for at in range(0, len(words), PAGE_WORDS)]
    return " ".join(random.Random(seed).sample(pages, min(count, len(pages))))


def _forms(seen: Sightings, source: CanaryPrompt) -> Iterator[Form]:
    """Forms by which the source would have been recognised."""
    codes = (c for c in seen.codes if c.identity == source.code_id(c.identity.position))
    if any(c.characters >= LEAST_CODE for c in codes):
        yield Form.CODE
    phrases = (p for p in seen.phrases if p.request == source.number)
    if any(p.words >= LEAST_PHRASE for p in phrases):
        yield Form.PHRASE
    if source.tenant.name_number in seen.names:
        yield Form.NAME
    if seen.private_words.intersection(source.tenant.private):
        yield Form.WORD

"""Where does it begin? Between the longest sound length and the shortest broken one, by halving.

Three signs show a boundary that nobody told: labels that are lost, a refusal, a first token that comes too
early for the length (prefill did not happen). The first that is there counts, in this order.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from statistics import median

from kvcanary.detect import ownership
from kvcanary.detect.first_token import LEAST_CONTROL_SECONDS, uncached
from kvcanary.record.boundary import Boundary, Sign
from kvcanary.record.exchange import Exchange, Purpose

HALVINGS = 3
"""Each costs one long prompt, or a few where it is lost, and halves the bracket."""
ASKED = 3
"""Times that a length is asked before its loss is believed: a model slips, and one slip would leave the
boundary outside the bracket. A label that came back once shows that its page was read."""
DROPPED = 0.5
"""Part of a shorter prompt's first-token time below which a longer one's has dropped: prefill takes longer
the longer the prompt is."""

_GOOD = (Purpose.CALIBRATION, Purpose.CONTROL, Purpose.READER)
_TRIED = (*_GOOD, Purpose.CONFIRMATION, Purpose.LADDER)


def bracket(exchanges: Sequence[Exchange]) -> Boundary | None:
    """The bracket that the strata give: sound below, broken above; None where nothing broke."""
    found = (_around(exchanges, sign, tokens) for sign, tokens in _broken(exchanges))
    return next((boundary for boundary in found if boundary), None)


def _broken(exchanges: Sequence[Exchange]) -> Iterator[tuple[Sign, int]]:
    """The shortest broken length by each sign."""
    lost = [_longest(g) for g in ownership.measure(exchanges) if g.condemned]
    refused = [e.length_tokens for e in exchanges if e.outcome == "refused" and e.purpose in _TRIED]
    early = [tokens for tokens, _ in _early(exchanges)]
    for sign, lengths in ((Sign.LABELS, lost), (Sign.REFUSAL, refused), (Sign.FIRST_TOKEN, early)):
        if any(lengths):
            yield sign, min(filter(None, lengths))


def _around(exchanges: Sequence[Exchange], sign: Sign, broken: int) -> Boundary | None:
    early = {number for _, number in _early(exchanges)}
    below = [
        e.length_tokens
        for e in exchanges
        if e.kept and e.purpose in _GOOD and e.length_tokens < broken and e.number not in early
    ]
    return Boundary(sound_tokens=max(below), lost_tokens=broken, sign=sign) if below else None


def _early(exchanges: Sequence[Exchange]) -> list[tuple[int, int]]:
    """Length and number of prompts whose first token came long before those of a shorter stratum."""
    timed = [
        (e.length_tokens, e.first_token_seconds, e)
        for e in exchanges
        if e.answered
        and e.purpose in _TRIED
        and e.first_token_seconds is not None
        and uncached(e) > DROPPED * e.length_tokens
    ]
    slowest: dict[str, tuple[int, float]] = {}
    for group in {e.group for _, _, e in timed}:
        mine = [(tokens, seconds) for tokens, seconds, e in timed if e.group == group]
        slowest[group] = (max(t for t, _ in mine), median(s for _, s in mine))
    long_enough = [(t, s) for t, s in slowest.values() if s >= LEAST_CONTROL_SECONDS]
    return [
        (tokens, e.number)
        for tokens, seconds, e in timed
        if any(tokens > shorter and seconds < DROPPED * s for shorter, s in long_enough)
    ]


async def narrow(found: Boundary, ask: Callable[[int], Awaitable[Exchange | None]]) -> Boundary:
    """Halve the bracket: ``ask`` sends a prompt of that many tokens.

    A bracket that only first tokens show is left as it is: one prompt's time says too little.
    """
    for _ in range(HALVINGS if found.sign is not Sign.FIRST_TOKEN else 0):
        middle = (found.sound_tokens + found.lost_tokens) // 2
        for _ in range(ASKED):
            exchange = await ask(middle)
            if exchange is None or exchange.kept or not exchange.read:
                break
        if exchange is None or not (exchange.read or exchange.outcome == "refused"):
            break
        if exchange.kept:
            found = found.model_copy(update={"sound_tokens": exchange.length_tokens})
        else:
            found = found.model_copy(update={"lost_tokens": exchange.length_tokens})
    return found


def _longest(group: ownership.Group) -> int:
    return max(e.length_tokens for e in group.losing)

"""Where does it begin? Between the longest sound length and the shortest broken one, by halving."""

from collections.abc import Awaitable, Callable, Sequence

from kvcanary.detect import ownership
from kvcanary.record.boundary import Boundary
from kvcanary.record.exchange import Exchange, Purpose

HALVINGS = 3
"""Each costs one long prompt, or a few where it is lost, and halves the bracket."""
ASKED = 3
"""Times that a length is asked before its loss is believed: a model slips, and one slip would leave the
boundary outside the bracket. A label that came back once shows that its page was read."""


def bracket(exchanges: Sequence[Exchange]) -> Boundary | None:
    """The bracket that the strata give: sound below, broken above; None where nothing broke."""
    groups = ownership.measure(exchanges)
    broken = [_longest(g) for g in groups if g.condemned]
    if not broken:
        return None
    lost = min(broken)
    good = (Purpose.CALIBRATION, Purpose.CONTROL, Purpose.READER)
    sound = [e.length_tokens for e in exchanges if e.kept and e.purpose in good]
    below = [tokens for tokens in sound if tokens < lost]
    return Boundary(sound_tokens=max(below), lost_tokens=lost) if below else None


async def narrow(found: Boundary, ask: Callable[[int], Awaitable[Exchange | None]]) -> Boundary:
    """Halve the bracket: ``ask`` sends a prompt of that many tokens."""
    for _ in range(HALVINGS):
        middle = (found.sound_tokens + found.lost_tokens) // 2
        for _ in range(ASKED):
            exchange = await ask(middle)
            if exchange is None or exchange.kept or not exchange.read:
                break
        if exchange is None or not (exchange.read or exchange.outcome == "refused"):
            break
        if exchange.kept:
            found = Boundary(sound_tokens=exchange.length_tokens, lost_tokens=found.lost_tokens)
        else:
            found = Boundary(sound_tokens=found.sound_tokens, lost_tokens=exchange.length_tokens)
    return found


def _longest(group: ownership.Group) -> int:
    return max(e.length_tokens for e in group.losing)

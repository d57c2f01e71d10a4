"""The high water: how many tokens of *our* text were in the pool at once.

Pages of other people's requests are stale pages too, but their text could not be recognised. So the pool's
own figure counts only while the pool holds nothing but our victims: empty before, and no fuller with them
than what was sent explains.
"""

from kvcanary.record.run import HighWater

IDLE = 0.01
"""Part of what is held that may have been in use before it, for the pool to count as ours alone."""
SLACK = 0.05
"""Part by which use may exceed what was sent: outputs so far, page rounding, reservations."""


def high_water(
    held_tokens: int,
    idle_tokens: int | None,
    used_tokens: int | None,
    decoders: tuple[str, ...],
) -> HighWater:
    """What is known of the fill: measured where pool and absence of other traffic allow it."""
    alone = (
        idle_tokens is not None
        and used_tokens is not None
        and idle_tokens <= IDLE * held_tokens
        and used_tokens <= (1 + SLACK) * held_tokens
    )
    if alone and used_tokens is not None:
        return HighWater(tokens=used_tokens, how="measured", decoders=decoders)
    return HighWater(tokens=held_tokens, how="estimated", decoders=decoders)

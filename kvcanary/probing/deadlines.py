"""How long a request may take: first-token time by its fit, the output's time, and patience. Pure."""

from collections.abc import Iterable

from kvcanary.probing.sizing import Calibration

PATIENCE = 4.0
"""Times the figured seconds: other people's requests stand in the same queues."""
LEAST_SECONDS = 60.0
"""Whatever was figured: a busy server makes a short prompt wait, too."""
SLOWEST_OUTPUT_SECONDS = 0.1
"""For one token of an answer, where nothing was timed."""


def deadline_seconds(
    calibration: Calibration, queued: Iterable[int], max_tokens: int, most_seconds: float
) -> float:
    """Seconds for a request; never more than ``most_seconds``.

    ``queued``, ``max_tokens``: as in `due_seconds`. Where no first token was timed, prompts longer than what
    calibration sent have ``most_seconds``.
    """
    lengths = tuple(queued)
    due = due_seconds(calibration, lengths, max_tokens)
    if due is None:
        short = sum(lengths) <= calibration.fitted_tokens
        return min(most_seconds, LEAST_SECONDS) if short else most_seconds
    return min(most_seconds, LEAST_SECONDS + due)


def due_seconds(calibration: Calibration, queued: Iterable[int], max_tokens: int) -> float | None:
    """Seconds within which a request has to be over, as calibration has it; None: no first token was timed.

    ``queued``: lengths of the prompts that may be computed before its first token comes, its own among them.
    ``max_tokens``: of its answer, and of all answers that may have to end before it has room.
    """
    fit = calibration.first_token
    if fit is None:
        return None
    pace = calibration.output_token_seconds or SLOWEST_OUTPUT_SECONDS
    return PATIENCE * (sum(map(fit.most_seconds, queued)) + pace * max_tokens)

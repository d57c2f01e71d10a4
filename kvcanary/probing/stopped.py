"""What keeps a run from being worth anything."""

from kvcanary.record.exchange import Exchange


class Stopped(Exception):  # noqa: N818 - says what happened
    """The run cannot measure anything (more). The message says why and what to do."""


def not_answered(exchange: Exchange) -> str:
    """Why a short request that has to be answered was not, and what to do."""
    status = f", HTTP {exchange.status}" if exchange.status else ""
    hint = {
        "rate_limited": "Wait, or use a key with a higher limit.",
        "overloaded": "Try again when it is ready.",
        "deadline": "Check that the model is loaded, or allow more with --deadline.",
        "length_limit": "The promised context (--context) is longer than what the server accepts.",
    }.get(exchange.reason, f"See the server's log for the request named {exchange.name}.")
    return (
        f"A short request was not answered ({exchange.outcome.replace('_', ' ')}: "
        f"{exchange.reason.replace('_', ' ')}{status}), so nothing could be measured. {hint}"
    )

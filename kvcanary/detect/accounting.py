"""Accounting: what the server counts against what was sent."""

from collections.abc import Sequence

from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity, named, stratum_of

TOLERANCE = 0.01
"""Fraction of the predicted prompt tokens that a server's count may be off. Codes tokenise unevenly and
the prediction is a fit; truncation and placeholders are off by far more."""
SLACK_TOKENS = 64
"""For short prompts."""


def off_by(exchange: Exchange) -> int | None:
    """Tokens that the server counted more than predicted; None where either figure is missing."""
    if exchange.prompt_tokens is None or exchange.planned_tokens is None or not exchange.answered:
        return None
    return exchange.prompt_tokens - exchange.planned_tokens


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Prompt counts that do not fit, and outputs longer than was asked for."""
    wrong = []
    for exchange in exchanges:
        difference = off_by(exchange)
        planned = exchange.planned_tokens or 0
        if difference is not None and abs(difference) > max(SLACK_TOKENS, TOLERANCE * planned):
            wrong.append(
                (exchange, f"usage says {exchange.prompt_tokens:,} prompt tokens, sent {planned:,}")
            )
        elif exchange.completion_tokens is not None and (
            exchange.completion_tokens > exchange.max_tokens
        ):
            line = (
                f"usage says {exchange.completion_tokens:,} completion tokens, "
                f"asked for at most {exchange.max_tokens:,}"
            )
            wrong.append((exchange, line))
    if not wrong:
        return ()
    groups = [e.group for e, _ in wrong]
    return (
        Finding(
            rule="accounting/usage",
            severity=Severity.ACCOUNTING,
            stratum=stratum_of(groups, "accounting"),
            title=f"usage does not add up for {len(wrong)} answer{'s' if len(wrong) > 1 else ''} in "
            f"{named(groups)}",
            evidence=tuple(f"request {e.number} (`{e.group}`): {line}" for e, line in wrong),
            remedy="Look for silent truncation (SGLang --allow-auto-truncate, a gateway that shortens chats) "
            "and for a response that belongs to another request.",
            exchanges=tuple(e.number for e, _ in wrong),
        ),
    )

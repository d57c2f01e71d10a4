"""Output: answers that look wrong, end wrongly or speak of other things, where those in good conditions do not.

Source: a6 and a8 of what a black-box client can assert: repetition, mixed scripts, role-word loops; an
abort that calls itself ``length``; an empty answer that calls itself complete. After a hand-over of the
wrong pages, and beside real customers' pages, this may be all that shows.
"""

from collections.abc import Callable, Sequence

from kvcanary.detect.unusual import Trait, unusual
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity

LOOPING = 0.5
"""Share of an answer that stands in loops."""
MIXED_SCRIPTS = 3
ROLE_WORDS, ROLE_SHARE = 4, 0.3
LEAST_WORDS, UNEXPLAINED = 8, 0.5
"""Words of an answer, and the share of them that its prompt does not explain."""
CUT_SHORT = 0.8
"""Part of the output asked for below which ``length`` is not what ended an answer."""
CONTEXT_SLACK = 64
"""Tokens that an engine may keep back at the end of its context."""

_Words = Callable[[Exchange], str]


def findings(exchanges: Sequence[Exchange], context_tokens: int | None) -> tuple[Finding, ...]:
    """Warnings: each says what a stratum does that this deployment does not do in good conditions."""

    def cut_short(exchange: Exchange) -> bool:
        return is_cut_short(exchange, context_tokens)

    return (
        *_told(
            exchanges,
            is_degenerate,
            "output/degenerate",
            "degenerate: loops, mixed scripts or role words",
            lambda e: (
                f"{e.look.looping:.0%} of it in loops, {e.look.scripts} scripts, "
                f"{e.look.role_words} role words"
            ),
            "Treat the lengths of this stratum as broken: attention over the wrong pages looks like this. "
            "Compare with the same prompts sent alone (`kvcanary replay`).",
        ),
        *_told(
            exchanges,
            is_unexplained,
            "output/unexplained-text",
            "hold text that their prompts do not explain",
            lambda e: f"{e.look.unexplained} of {e.look.words} words",
            "It may be other people's: the record has none of it. Keep the deployment's logs for the request "
            "ids named in the record, and look there.",
        ),
        *_told(
            exchanges,
            is_empty,
            "output/empty-answer",
            "are empty, and say that they are complete",
            lambda e: f"HTTP {e.status}, finish {e.finish_reason}, no text",
            "Look for these request ids in the engines' logs: an abort that is told as an end hides a failure.",
        ),
        *_told(
            exchanges,
            cut_short,
            "output/cut-short",
            "ended by `length` long before the length that was asked for",
            lambda e: f"{e.completion_tokens} of {e.max_tokens} tokens, finish length",
            "Look for aborts and preemptions at these times: engines have told them as `length`.",
        ),
    )


def is_degenerate(exchange: Exchange) -> bool:
    """Loops, a mix of scripts, or the words of a chat template."""
    look = exchange.look
    roles = look.role_words >= ROLE_WORDS and look.role_words >= ROLE_SHARE * look.words
    return look.looping >= LOOPING or look.scripts >= MIXED_SCRIPTS or roles


def is_unexplained(exchange: Exchange) -> bool:
    """Most of it comes from elsewhere than its prompt."""
    look = exchange.look
    return look.words >= LEAST_WORDS and look.unexplained >= UNEXPLAINED * look.words


def is_empty(exchange: Exchange) -> bool:
    """A complete answer without any text."""
    return exchange.finish_reason in ("stop", "length") and exchange.answer_characters == 0


def is_cut_short(exchange: Exchange, context_tokens: int | None) -> bool:
    """``length`` with tokens to spare, in the output asked for and in the context."""
    if exchange.finish_reason != "length" or exchange.completion_tokens is None:
        return False
    end = exchange.length_tokens + exchange.completion_tokens
    room = context_tokens is not None and end < context_tokens - CONTEXT_SLACK
    return room and exchange.completion_tokens < CUT_SHORT * exchange.max_tokens


def _told(
    exchanges: Sequence[Exchange], trait: Trait, rule: str, what: str, words: _Words, remedy: str
) -> list[Finding]:
    return [
        Finding(
            rule=rule,
            severity=Severity.DEGRADED,
            stratum=one.group,
            title=f"{len(one.having)} of {one.answers} answers in `{one.group}` {_are(what)}",
            evidence=(
                *(
                    f"request {e.number} ({e.length_tokens:,} tokens): {words(e)}"
                    for e in one.having
                ),
                f"no control does so, and so do few of the {one.good} answers in good conditions",
            ),
            remedy=remedy,
            exchanges=tuple(e.number for e in one.having),
        )
        for one in unusual(exchanges, trait)
    ]


def _are(what: str) -> str:
    return f"are {what}" if what.startswith("degenerate") else what

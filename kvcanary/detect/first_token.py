"""First token: an answer that begins before its prompt can have been read was not computed from it.

Prefill is at best linear in the prompt's length, so a prompt longer than the control's cannot get its
first token in a small part of the control's time. Only judged where the control took long enough for
the clock to matter, and only when the whole stratum is early and no answer of it kept its label: whoever
knows what stands in a prompt has read it, and the machine may only have been busy when the control was
sent. What came from a prefix cache needs no prefill (a replay word for word is meant to hit it): prompts
are compared by what was not cached, and those that were cached by half or more are not compared at all.
"""

from collections.abc import Iterable, Sequence

from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity

EARLY = 0.4
"""Fraction of the quickest control's seconds per token below which prefill cannot have happened."""
LEAST_CONTROL_SECONDS = 0.5
LEAST_UNCACHED = 0.5
LEAST_LENGTH_RATIO = 0.9
"""Only strata at least nearly as long as the control are compared with it."""


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Strata whose every first token came impossibly early."""
    control = _timed(e for e in exchanges if e.purpose is Purpose.CONTROL)
    if not control:
        return ()
    # the quickest, for what a busy machine adds is no prefill: only so much is known to be needed
    seconds = min(seconds for _, seconds in control)
    pace = min(seconds / uncached(e) for e, seconds in control)
    shortest = min(uncached(e) for e, _ in control)
    if seconds < LEAST_CONTROL_SECONDS:
        return ()
    found = []
    readers = [e for e in exchanges if e.purpose in (Purpose.READER, Purpose.CONFIRMATION)]
    for group in sorted({e.group for e in readers}):
        timed = _timed(e for e in readers if e.group == group)
        long = [(e, s) for e, s in timed if uncached(e) >= LEAST_LENGTH_RATIO * shortest]
        if len(long) < 2 or any(e.kept or s / uncached(e) >= EARLY * pace for e, s in long):
            continue
        found.append(
            Finding(
                rule="first-token/too-early",
                severity=Severity.ACCOUNTING,
                stratum=group,
                title=f"all {len(long)} first tokens in `{group}` came before their prompts can have been read",
                evidence=tuple(
                    f"request {e.number}: {e.length_tokens:,} tokens, first token {s:.2f} s after the upload; "
                    f"the control's pace makes it {pace * uncached(e):.2f} s"
                    for e, s in long
                ),
                remedy="Prefill did not happen for these prompts: compare the prefill worker's prompt token "
                "counter with what was sent.",
                exchanges=tuple(e.number for e, _ in long),
            )
        )
    return tuple(found)


def _timed(exchanges: Iterable[Exchange]) -> list[tuple[Exchange, float]]:
    return [
        (e, e.first_token_seconds)
        for e in exchanges
        if e.answered
        and e.first_token_seconds is not None
        and uncached(e) > LEAST_UNCACHED * e.length_tokens
    ]


def uncached(exchange: Exchange) -> int:
    """Tokens that had to be computed, as far as the server tells."""
    return max(0, exchange.length_tokens - (exchange.cached_tokens or 0))

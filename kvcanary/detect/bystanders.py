"""Bystanders: short honest requests beside long ones. They are stopped, or wait for as long as those take.

Source: a4: a bystander makes progress meanwhile and afterwards.
"""

from collections.abc import Sequence
from statistics import median

from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity, stratum_of

STOPPED = ("errored", "hung", "truncated")
OVERLOAD = ("overloaded", "http_502", "http_504", "idle_reset")
"""Reasons for which a proxy or an engine under load turns a request away."""
STARVED_SECONDS, STARVED_TIMES = 10.0, 20.0
"""A first token that took so long, and so many times as long as in calm, was kept waiting."""
BESIDE = 0.8
"""Part of the longest long request's time that it waited: for that request, and for nothing else."""


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Bystanders that were stopped (two or more: availability), and that starved (a warning)."""
    bystanders = [e for e in exchanges if e.purpose is Purpose.BYSTANDER]
    return (*_stopped(bystanders), *_starved(bystanders, exchanges))


def _stopped(bystanders: Sequence[Exchange]) -> tuple[Finding, ...]:
    sure = [
        e
        for e in bystanders
        if e.outcome in STOPPED and e.reason != "cut_before_text" and not e.hurried
    ]
    stopped = [
        e
        for e in bystanders
        if e.outcome in STOPPED or (e.outcome == "not_reached" and e.reason in OVERLOAD)
    ]
    if not stopped:
        return ()
    return (
        Finding(
            rule="availability/bystanders-stopped",
            severity=Severity.AVAILABILITY if len(sure) > 1 else Severity.DEGRADED,
            stratum=stratum_of((e.group for e in stopped), "availability"),
            title=f"{len(stopped)} of {len(bystanders)} short requests beside long ones were not served",
            evidence=tuple(
                f"request {e.number}: {e.length_tokens:,} tokens, {e.outcome} ({e.reason}) after "
                f"{e.total_seconds:.1f} s"
                for e in stopped
            ),
            remedy="Long requests take others down with them: see what the engines logged at these times.",
            exchanges=tuple(e.number for e in stopped),
        ),
    )


def _starved(bystanders: Sequence[Exchange], exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    calm = [
        e.first_token_seconds
        for e in exchanges
        if e.purpose is Purpose.CALIBRATION and e.first_token_seconds is not None
    ]
    if not calm:
        return ()
    most = max(STARVED_SECONDS, STARVED_TIMES * median(calm))
    waited = [(e, e.first_token_seconds) for e in bystanders if e.answered]
    starved = [
        (e, seconds)
        for e, seconds in waited
        if seconds is not None and seconds > most and seconds >= BESIDE * _beside(e, exchanges)
    ]
    if not starved:
        return ()
    return (
        Finding(
            rule="availability/bystanders-starved",
            severity=Severity.DEGRADED,
            stratum=stratum_of((e.group for e, _ in starved), "availability"),
            title=f"{len(starved)} of {len(waited)} short requests waited until a long one was done",
            evidence=tuple(
                f"request {e.number}: first token after {seconds:.1f} s; {median(calm):.2f} s in calm"
                for e, seconds in starved
            ),
            remedy="Let prefill be cut in chunks that short requests can get between (chunked prefill), or "
            "keep long prompts on workers of their own.",
            exchanges=tuple(e.number for e, _ in starved),
        ),
    )


def _beside(exchange: Exchange, exchanges: Sequence[Exchange]) -> float:
    """Seconds that the longest of the long requests took that were under way at the same time."""
    end = exchange.started_at + exchange.total_seconds
    return max(
        (
            e.total_seconds
            for e in exchanges
            if e.purpose is Purpose.READER
            and e.started_at < end
            and e.started_at + e.total_seconds > exchange.started_at
        ),
        default=0.0,
    )

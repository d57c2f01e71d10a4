"""Spoilt requests: what any correct server refuses is refused, soon, and is no answer from other pages.

A server may be lenient and answer all the same: then from the request's own pages. Source: a1, a3 and a4;
S32605, S33507, V27073: one role refuses, the other goes on with whatever lies in the pages.
"""

from collections.abc import Sequence
from statistics import median

from kvcanary.canary.odds import at_least
from kvcanary.detect.bystanders import STARVED_SECONDS, STARVED_TIMES
from kvcanary.detect.ownership import CONDEMN, GOOD_CONDITIONS, slip_rate
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity, stratum_of


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Refusals that did not end the request, that never came, and that came late (a warning)."""
    spoilt = [e for e in exchanges if e.purpose is Purpose.SPOILT]
    return (*_went_on(spoilt, exchanges), *_hung(spoilt), *_slow(spoilt, exchanges))


def _went_on(spoilt: Sequence[Exchange], exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    good = [e for e in exchanges if e.purpose in GOOD_CONDITIONS and e.read]
    rate = slip_rate(good)
    read = [e for e in spoilt if e.read]
    gone = [e for e in read if not e.kept]
    if not gone or at_least(len(gone), len(read), rate) > CONDEMN:
        return ()
    return (
        Finding(
            rule="refusal/not-terminal",
            severity=Severity.ACCOUNTING,
            stratum=stratum_of((e.group for e in gone), "refusal"),
            title=f"{len(gone)} requests that have to be refused were answered, and not from their own prompts",
            evidence=tuple(
                f"request {e.number} ({_why(e)}): HTTP {e.status}, finish {e.finish_reason}, its own label lost"
                for e in gone
            ),
            remedy="One role refuses such a request and the other goes on with it: make the front door refuse it, "
            "until the refusal ends it everywhere.",
            exchanges=tuple(e.number for e in gone),
        ),
    )


def _hung(spoilt: Sequence[Exchange]) -> tuple[Finding, ...]:
    hung = [e for e in spoilt if e.outcome == "hung" and not e.hurried]
    if not hung:
        return ()
    return (
        Finding(
            rule="availability/refusals-hang",
            severity=Severity.AVAILABILITY if len(hung) > 1 else Severity.DEGRADED,
            stratum=stratum_of((e.group for e in hung), "availability"),
            title=f"{len(hung)} of {len(spoilt)} requests that have to be refused were never answered at all",
            evidence=tuple(
                f"request {e.number} ({_why(e)}): nothing for {e.total_seconds:.1f} s" for e in hung
            ),
            remedy="One role refuses such a request and the other waits for it: its pages may never come back.",
            exchanges=tuple(e.number for e in hung),
        ),
    )


def _slow(spoilt: Sequence[Exchange], exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    calm = [
        e.first_token_seconds
        for e in exchanges
        if e.purpose is Purpose.CALIBRATION and e.first_token_seconds is not None
    ]
    most = max(STARVED_SECONDS, STARVED_TIMES * median(calm)) if calm else STARVED_SECONDS
    refused = [e for e in spoilt if e.status is not None and 400 <= e.status < 500]
    slow = [e for e in refused if e.total_seconds > most]
    if not slow:
        return ()
    return (
        Finding(
            rule="availability/refusals-slow",
            severity=Severity.DEGRADED,
            stratum=stratum_of((e.group for e in slow), "availability"),
            title=f"{len(slow)} of {len(refused)} refusals took longer than {most:.0f} s",
            evidence=tuple(
                f"request {e.number} ({_why(e)}): HTTP {e.status} after {e.total_seconds:.1f} s"
                for e in slow
            ),
            remedy="Refuse at the front door what can never be served, before it waits in a queue.",
            exchanges=tuple(e.number for e in slow),
        ),
    )


def _why(exchange: Exchange) -> str:
    return exchange.manner.spoilt.meaning if exchange.manner.spoilt else ""

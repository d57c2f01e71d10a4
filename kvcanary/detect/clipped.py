"""Clipped: answers that end in the middle of their label and call themselves complete.

Source: a8 of what a black-box client can assert: no ``stop`` in the middle of a strict format; S24523, S4048:
an output budget of a few tokens that nobody asked for. Two things tell it from a model that stops there by
itself: where good conditions do not show it (`unusual`), and what cuts at one count of output tokens, whatever
the label. Labels are cut into tokens unevenly, so a model that stops at one place of a label, or at any, does
so after different counts. Anything else is a warning.
"""

from collections import Counter
from collections.abc import Sequence

from kvcanary.canary.odds import at_least
from kvcanary.detect.ownership import CONDEMN
from kvcanary.detect.unusual import unusual
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.findings import Finding, Severity, stratum_of

LEAST_CUT = 3
"""Answers that end in the middle of their label."""
ONE_COUNT = 0.5
"""Part of a model's own stops that may at most fall on one count of output tokens."""


def findings(exchanges: Sequence[Exchange]) -> tuple[Finding, ...]:
    """Wrong accounts where a cut is proven, else a warning; none where no label came whole."""
    read = [e for e in exchanges if e.read and e.finish_reason == "stop"]
    cut = [e for e in read if e.look.cut_in_label]
    whole = [e for e in read if e.kept and not e.look.cut_in_label]
    if len(cut) < LEAST_CUT or not whole:
        return ()
    apart = [one.odds for one in unusual(exchanges, _stops_in_label)]
    odds = min([*apart, odds_of_one_count(cut)])
    proven = odds <= CONDEMN
    return (
        Finding(
            rule="output/clipped" if proven else "output/stopped-in-label",
            severity=Severity.ACCOUNTING if proven else Severity.DEGRADED,
            stratum=stratum_of((e.group for e in cut), "output"),
            title=f"{len(cut)} of {len(read)} answers end by `stop` in the middle of their label",
            evidence=(
                *(
                    f"request {e.number} ({e.group}): {e.completion_tokens} of {e.max_tokens} tokens, "
                    "finish stop"
                    for e in cut
                ),
                f"{len(whole)} other answers say their label whole; odds of a model's own stops: {odds:.0e}",
            ),
            remedy="Something cuts outputs short and says that they are complete: compare output limits of the "
            "workers and the gateway.",
            exchanges=tuple(e.number for e in cut),
        ),
    )


def odds_of_one_count(cut: Sequence[Exchange]) -> float:
    """Odds that so many texts were cut after one count of tokens, if at most ``ONE_COUNT`` of a model's own
    stops fall on any: two such counts are the worst case."""
    counted = {e.text: e.completion_tokens for e in cut if e.completion_tokens is not None}
    if not counted:
        return 1.0
    (_, most), *_ = Counter(counted.values()).most_common(1)
    return min(1.0, at_least(most, len(counted), ONE_COUNT) / ONE_COUNT)


def _stops_in_label(exchange: Exchange) -> bool:
    return exchange.look.cut_in_label and exchange.finish_reason == "stop"

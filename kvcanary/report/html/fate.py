"""What became of each request, in one word: what colours and shapes stand for."""

from collections.abc import Set as AbstractSet

from kvcanary.record.exchange import Exchange, Recall
from kvcanary.record.run import RunRecord
from kvcanary.report.html.figure import Tone
from kvcanary.verdict.findings import Severity

MEANING = {
    Tone.LEAK: "holds another request's text",
    Tone.LOST: "lost its own label",
    Tone.KEPT: "kept its own label",
    Tone.REFUSED: "refused",
    Tone.OTHER: "let go of, or no answer to judge",
}
LEGEND = tuple(MEANING.items())


def leaking(record: RunRecord) -> frozenset[int]:
    """Numbers of the requests whose answers a leak was found in."""
    return frozenset(n for f in record.findings if f.severity is Severity.LEAK for n in f.exchanges)


def fate(exchange: Exchange, leaks: AbstractSet[int]) -> Tone:
    """The worst that is known of it. ``leaks``: what ``leaking`` found."""
    if exchange.number in leaks:
        return Tone.LEAK
    if exchange.outcome == "refused" or exchange.unsupported:
        return Tone.REFUSED
    if exchange.recall is Recall.NOT_READ:
        return Tone.OTHER
    return Tone.KEPT if exchange.kept else Tone.LOST

"""Picture: what each pool holds of the promised context, and the danger window."""

from collections.abc import Sequence

from kvcanary.record.run import RunRecord
from kvcanary.report.html.axis import Axis
from kvcanary.report.html.figure import (
    Band,
    Bar,
    Figure,
    Guide,
    Lane,
    Lanes,
    Missing,
    Table,
    Tone,
    more,
)
from kvcanary.report.html.words import number, tokens
from kvcanary.verdict.claims import Holding, Status

ID, TITLE = "pools", "Pool against context"
MOST = 16
"""Pools that are drawn, the smallest first."""
TONES = {Status.PASS: Tone.KEPT, Status.FAIL: Tone.LEAK, Status.INCONCLUSIVE: Tone.OTHER}
WORDS = {Status.PASS: "holds it", Status.FAIL: "too small", Status.INCONCLUSIVE: "unknown"}


def draw(record: RunRecord) -> Figure | Missing:
    """A bar for each worker or rank, the context limit as a line, the danger window hatched."""
    holdings = record.verdict.holdings if record.verdict else ()
    facts = record.facts
    if not holdings or facts is None:
        return Missing(ID, TITLE, "no worker is known, so no pool is.")
    context, window = facts.context_tokens, facts.danger_window
    shown = sorted(holdings, key=_tokens)[:MOST] if len(holdings) > MOST else holdings
    axis = Axis.holding([*map(_tokens, shown), context or 0])
    band = None
    if window:
        first, last = axis.at(window.first_tokens), axis.at(window.last_tokens)
        what = f"danger window: {window.first_tokens:,} to {window.last_tokens:,} tokens"
        band = Band(first, round(last - first, 2), what)
    guides = (
        ()
        if context is None
        else (Guide("A", axis.at(context), f"context limit: {context:,} tokens", True),)
    )
    return Figure(
        ID,
        TITLE,
        _caption(holdings, context, hatched=band is not None),
        Lanes(tuple(_lane(h, axis) for h in shown), axis.ticks(tokens), "tokens", guides, band),
        Table.of(
            ("pool", "role", "holds, tokens", "longest prompt, tokens", "verdict"),
            (
                (
                    _name(h),
                    h.role,
                    number(h.pool_tokens),
                    number(h.limit_tokens),
                    h.note or WORDS[h.status],
                )
                for h in holdings
            ),
        ),
        more(len(holdings) - len(shown), "pools, none of them smaller,"),
    )


def _caption(holdings: Sequence[Holding], context: int | None, *, hatched: bool) -> str:
    if context is None:
        return "How many tokens each pool holds. The context limit is unknown, so no pool can be judged."
    short = sum(h.status is Status.FAIL for h in holdings)
    unknown = sum(h.pool_tokens is None for h in holdings)
    said = [
        "A request lives in one pool of each role, so every bar has to reach the line A, the context limit.",
        f"{short} of {len(holdings)} do not." if short else "" if unknown else "Every one does.",
        f"{unknown} of {len(holdings)} are unknown." if unknown else "",
        "Hatched is the danger window: lengths that prefill refuses and decode takes."
        if hatched
        else "",
    ]
    return " ".join(filter(None, said))


def _lane(holding: Holding, axis: Axis) -> Lane:
    pool = holding.pool_tokens
    bars = (
        ()
        if pool is None
        else (Bar(0.0, axis.at(pool), TONES[holding.status], f"{pool:,} tokens"),)
    )
    note = "unknown" if pool is None else f"{pool:,} tokens, {WORDS[holding.status]}"
    return Lane(f"{_name(holding)} {holding.role}", note, 16, bars)


def _name(holding: Holding) -> str:
    return holding.worker if holding.rank is None else f"{holding.worker}.{holding.rank}"


def _tokens(holding: Holding) -> int:
    """Unknown pools come first: none of them is known to hold anything."""
    return -1 if holding.pool_tokens is None else holding.pool_tokens

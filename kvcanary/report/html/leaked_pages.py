"""Picture: where in the victims' prompts the text stood that others were given."""

from collections import defaultdict
from collections.abc import Sequence

from kvcanary.record.exchange import Exchange, ForeignText
from kvcanary.record.run import RunRecord
from kvcanary.report.html.axis import Axis
from kvcanary.report.html.fate import leaking
from kvcanary.report.html.figure import (
    Bar,
    Figure,
    Lane,
    Lanes,
    Mark,
    Missing,
    Table,
    Tone,
    more,
    scale,
)
from kvcanary.report.html.words import counted, tokens

ID, TITLE = "places", "Where leaked pages lay"
MOST = 12
"""Victims that are drawn, those with the most sightings first."""
COLUMNS = 150


def draw(record: RunRecord) -> Figure | Missing:
    """A row for each request whose text came out elsewhere; its length, and a mark at each place."""
    leaks = leaking(record)
    owners = {e.text: e for e in reversed(record.exchanges)}
    seen: dict[int, list[tuple[int, Exchange, ForeignText]]] = defaultdict(list)
    for exchange in record.exchanges:
        if exchange.number in leaks:
            for text in exchange.foreign:
                if (
                    text.request in owners
                    and text.at_tokens is not None
                    and text.run == record.info.run
                ):
                    seen[text.request].append((text.at_tokens, exchange, text))
    if not seen:
        why = (
            "the leaked text does not tell its place."
            if leaks
            else "no text of another request was proven."
        )
        return Missing(ID, TITLE, why)
    order = sorted(seen, key=lambda number: (-len(seen[number]), number))
    shown = sorted(order[:MOST])
    axis = Axis.holding(max(owners[n].length_tokens, *(at for at, _, _ in seen[n])) for n in shown)
    return Figure(
        ID,
        TITLE,
        "Each bar is the prompt of a victim, from its first token to its last; each mark is a place whose text "
        "came out in another request's answer. Places are counted in the victim's tokens, to about a chapter.",
        Lanes(
            tuple(_lane(owners[n], [at for at, _, _ in seen[n]], axis) for n in shown),
            axis.ticks(tokens),
            "tokens from the beginning of the victim's prompt",
        ),
        Table.of(
            ("victim", "about token", "of", "form", "read by"),
            (
                (
                    f"request {n}, tenant {owners[n].tenant}",
                    f"{at:,}",
                    f"{owners[n].length_tokens:,}",
                    text.form.value,
                    f"request {reader.number}, tenant {reader.tenant}",
                )
                for n in order
                for at, reader, text in sorted(seen[n], key=lambda one: (one[0], one[1].number))
            ),
        ),
        more(len(order) - len(shown), "victims"),
    )


def _lane(victim: Exchange, places: Sequence[int], axis: Axis) -> Lane:
    columns: dict[int, list[int]] = defaultdict(list)
    for at in places:
        columns[int(axis.at(at) * COLUMNS / 100)].append(at)
    marks = tuple(
        Mark(
            axis.at(sum(ats) / len(ats)),
            Tone.LEAK,
            f"about token {ats[0]:,}, {counted(len(ats), 'sighting')}",
            scale=scale(len(ats)),
        )
        for _, ats in sorted(columns.items())
    )
    length = victim.length_tokens
    bar = Bar(0.0, axis.at(length), Tone.OTHER, f"{length:,} tokens")
    return Lane(
        f"request {victim.number}, tenant {victim.tenant} ({victim.group})",
        counted(len(places), "sighting"),
        22,
        (bar,),
        marks,
    )

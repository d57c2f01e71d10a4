"""Picture: what became of prompts of each length, with every limit drawn in."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord
from kvcanary.report.html.axis import Axis
from kvcanary.report.html.fate import MEANING, fate, leaking
from kvcanary.report.html.figure import (
    Band,
    Figure,
    Guide,
    Lane,
    Lanes,
    Mark,
    Missing,
    Table,
    Tone,
    more,
    scale,
)
from kvcanary.report.html.words import counted, span, tokens

ID, TITLE = "lengths", "Outcome against length"
COLUMNS = 150
"""Prompts of about one length make one mark: so many lengths are told apart."""
MOST_GUIDES = 8


def draw(record: RunRecord) -> Figure | Missing:
    """A row for each outcome, a mark for each length at which it came about."""
    sent = [e for e in record.exchanges if e.length_tokens]
    if not sent:
        return Missing(ID, TITLE, "no prompt was sent.")
    leaks = leaking(record)
    context = record.facts.context_tokens if record.facts else None
    axis = Axis.holding([*(e.length_tokens for e in sent), context or 0])
    fates: dict[Tone, list[Exchange]] = defaultdict(list)
    for exchange in sent:
        fates[fate(exchange, leaks)].append(exchange)
    lanes = tuple(_lane(tone, fates[tone], axis, len(sent)) for tone in Tone if fates[tone])
    limits = list(_limits(record))
    guides = tuple(
        Guide(
            chr(ord("A") + n),
            axis.at(at) if axis.holds(at) else None,
            f"{at:,} tokens: {what}",
            strong,
        )
        for n, (at, what, strong) in enumerate(limits[:MOST_GUIDES])
    )
    window = record.facts.danger_window if record.facts else None
    band = None
    if window:
        first, last = axis.at(window.first_tokens), axis.at(window.last_tokens)
        band = Band(
            first, round(last - first, 2), "danger window: refused by prefill, taken by decode"
        )
    return Figure(
        ID,
        TITLE,
        "Each mark stands at the length of a prompt; a larger one stands for several. Sound is a deployment that "
        "keeps every label up to its smallest limit, and refuses what is longer."
        + (" Nothing but refusals belongs in the hatched danger window." if band else ""),
        Lanes(lanes, axis.ticks(tokens), "tokens in the prompt", guides, band),
        _table(sent, leaks, axis),
        more(len(limits) - len(guides), "limits"),
    )


def _lane(tone: Tone, exchanges: Iterable[Exchange], axis: Axis, everything: int) -> Lane:
    columns = _columns(exchanges, axis)
    marks = tuple(_mark(tone, lengths, axis) for _, lengths in sorted(columns.items()))
    count = sum(map(len, columns.values()))
    return Lane(MEANING[tone], f"{count:,} of {everything:,}", 26, marks=marks)


def _columns(exchanges: Iterable[Exchange], axis: Axis) -> dict[int, list[int]]:
    """Lengths by the column of the picture that they fall into."""
    columns: dict[int, list[int]] = defaultdict(list)
    for exchange in exchanges:
        columns[int(axis.at(exchange.length_tokens) * COLUMNS / 100)].append(exchange.length_tokens)
    return columns


def _mark(tone: Tone, lengths: list[int], axis: Axis) -> Mark:
    count = len(lengths)
    title = f"{counted(count, 'request')}, {span(lengths)} tokens"
    return Mark(axis.at(sum(lengths) / count), tone, title, scale=scale(count))


def _limits(record: RunRecord) -> Iterator[tuple[int, str, bool]]:
    """Every limit once, from the smallest: where it is, whose it is, whether it is the promise."""
    said: dict[int, list[str]] = defaultdict(list)
    facts = record.facts
    if facts:
        takes: dict[int, list[str]] = defaultdict(list)
        holds: dict[int, list[str]] = defaultdict(list)
        for name, worker in zip(facts.names, facts.workers, strict=True):
            if worker.limit_tokens is not None:
                takes[worker.limit_tokens].append(name)
            if worker.pool_tokens is not None:
                holds[worker.pool_tokens].append(name)
        if facts.context_tokens is not None:
            said[facts.context_tokens].append("the context limit")
        for at, names in takes.items():
            said[at].append(f"the longest prompt of {_listed(names)}")
        for at, names in holds.items():
            said[at].append(f"the pool of {_listed(names)}")
    if record.boundary:
        sign = record.boundary.sign.value
        said[record.boundary.sound_tokens].append(
            "the longest sound one of the search for a boundary"
        )
        said[record.boundary.lost_tokens].append(
            f"the shortest of the search with the sign: {sign}"
        )
    promise = facts.context_tokens if facts else None
    for at, what in sorted(said.items()):
        yield at, "; ".join(what), at == promise


def _listed(names: list[str], most: int = 4) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _table(sent: Iterable[Exchange], leaks: frozenset[int], axis: Axis) -> Table:
    """The same by length, the longest first."""
    counts: dict[int, Counter[Tone]] = defaultdict(Counter)
    lengths: dict[int, list[int]] = defaultdict(list)
    for exchange in sent:
        column = int(axis.at(exchange.length_tokens) * COLUMNS / 100)
        counts[column][fate(exchange, leaks)] += 1
        lengths[column].append(exchange.length_tokens)
    return Table.of(
        ("tokens", *MEANING.values()),
        (
            (span(lengths[c]), *(f"{counts[c][tone]:,}" for tone in Tone))
            for c in sorted(counts, reverse=True)
        ),
    )

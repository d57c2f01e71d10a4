"""Picture: how long the first token took, against the length of the prompt."""

from collections import defaultdict
from collections.abc import Sequence

from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord
from kvcanary.report.html.axis import Axis
from kvcanary.report.html.fate import LEGEND, MEANING, fate, leaking
from kvcanary.report.html.figure import Figure, Line, Mark, Missing, Scatter, Table, Tone, scale
from kvcanary.report.html.words import counted, seconds, span, tokens

ID, TITLE = "first-token", "First-token time against length"
CELLS = 100
"""Cells along each side of the picture; answers of one outcome in one cell make one mark."""
MOST_MARKS = 600
"""With more marks than this the cells are made larger."""


def draw(record: RunRecord) -> Figure | Missing:
    """A mark for each answer, and calibration's line."""
    timed = [
        (e, e.first_token_seconds)
        for e in record.exchanges
        if e.first_token_seconds is not None and e.length_tokens
    ]
    if not timed:
        return Missing(ID, TITLE, "no answer was streamed, so no first token was timed.")
    leaks = leaking(record)
    across = Axis.holding(e.length_tokens for e, _ in timed)
    up = Axis.holding(s for _, s in timed)
    cells = _cells(timed, leaks, across, up)
    # the worst last: it is drawn over the others
    order = sorted(cells, key=lambda cell: (-list(Tone).index(cell[0]), cell[1:]))
    line = _line(record, across, up)
    used = {tone for tone, _, _ in cells}
    return Figure(
        ID,
        TITLE,
        "Prefill takes time for every token, so the marks rise with the length. Long prompts far below the others "
        "were answered before they can have been read, unless they came from a prefix cache."
        + (
            " The dashed line is what calibration's short prompts led one to expect."
            if line
            else ""
        ),
        Scatter(
            tuple(_mark(cell[0], cells[cell], across, up) for cell in order),
            across.ticks(tokens),
            up.ticks(seconds),
            "tokens in the prompt",
            line,
            tuple(entry for entry in LEGEND if entry[0] in used),
        ),
        _table(timed, leaks),
    )


_Cells = dict[tuple[Tone, int, int], list[tuple[int, float]]]


def _cells(
    timed: Sequence[tuple[Exchange, float]], leaks: frozenset[int], across: Axis, up: Axis
) -> _Cells:
    """Lengths and times by outcome and cell."""
    points = [
        (fate(e, leaks), across.at(e.length_tokens), up.at(took), (e.length_tokens, took))
        for e, took in timed
    ]
    size = CELLS
    while True:
        cells: _Cells = defaultdict(list)
        for tone, x, y, point in points:
            cells[tone, int(x * size / 100), int(y * size / 100)].append(point)
        if len(cells) <= MOST_MARKS or size <= 1:
            return cells
        size //= 2


def _mark(tone: Tone, points: list[tuple[int, float]], across: Axis, up: Axis) -> Mark:
    count = len(points)
    length, took = sum(p[0] for p in points) / count, sum(p[1] for p in points) / count
    what = f"{MEANING[tone]}: {length:,.0f} tokens, {took:.2f} s"
    return Mark(
        across.at(length),
        tone,
        what + (f" ({counted(count, 'request')})" if count > 1 else ""),
        round(100 - up.at(took), 2),
        scale(count),
    )


def _line(record: RunRecord, across: Axis, up: Axis) -> Line | None:
    """Calibration's fit, as far as it stays in the picture."""
    fit = record.calibration.first_token if record.calibration else None
    if fit is None or fit.per_token_seconds <= 0 or fit.base_seconds >= up.most:
        return None
    end = min(across.most, (up.most - max(0.0, fit.base_seconds)) / fit.per_token_seconds)
    return Line(
        0.0,
        round(100 - up.at(fit.expected_seconds(0)), 2),
        across.at(end),
        round(100 - up.at(fit.expected_seconds(round(end))), 2),
        f"expected from {fit.samples} short prompts",
    )


def _table(timed: list[tuple[Exchange, float]], leaks: frozenset[int]) -> Table:
    """By stratum: between which lengths, and the quickest and slowest first token."""
    groups: dict[str, list[tuple[Exchange, float]]] = defaultdict(list)
    for exchange, took in timed:
        groups[exchange.group].append((exchange, took))
    rows = []
    for group, members in groups.items():
        lengths = [e.length_tokens for e, _ in members]
        times = [s for _, s in members]
        rows.append(
            (
                group,
                f"{len(members):,}",
                span(lengths),
                f"{min(times):.2f} s",
                f"{max(times):.2f} s",
                f"{sum(fate(e, leaks) in (Tone.LEAK, Tone.LOST) for e, _ in members):,}",
            )
        )
    return Table.of(("stratum", "answers", "tokens", "quickest", "slowest", "leaked or lost"), rows)

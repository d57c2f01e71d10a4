"""Picture: how full the pools were while the run lasted, with the probes and their findings beneath."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord
from kvcanary.record.series import Series
from kvcanary.report.html.axis import Axis
from kvcanary.report.html.figure import (
    MAX_FINDINGS,
    Bar,
    Curve,
    Figure,
    Flag,
    Lane,
    Lanes,
    Missing,
    Table,
    Tone,
    more,
    together,
)
from kvcanary.report.html.words import counted, number, percent

ID, TITLE = "use", "Pool use over time"
MOST_RANKS = 8
"""Pools that are drawn, the fullest first."""
MOST_PROBES = 16
COLUMNS = 240
"""Moments that are told apart in the rows of the probes."""
EDGE = 14.0
"""Percent of the width that half of the longest flag takes on a phone."""
FLAGGED = 3
"""Findings that a flag names before it says how many there are."""
_BOX = 1_000
FULL = 92.0
"""Height of a full pool, in percent of its row."""


def draw(record: RunRecord) -> Figure | Missing:
    """A row for each pool, then one for each probe, on one axis of time."""
    told = [s for s in record.series if s.peak_tokens is not None]
    if not told:
        return Missing(ID, TITLE, "no worker told its use while the run lasted.")
    began = min((s.began_at for s in told if s.began_at is not None), default=None)
    shown = (
        sorted(told, key=_fullness, reverse=True)[:MOST_RANKS] if len(told) > MOST_RANKS else told
    )
    sent = record.exchanges if began is not None else ()
    ends = [e.started_at + e.total_seconds - (began or 0.0) for e in sent]
    axis = Axis.holding([*(_since(s, began)(s.at_seconds[-1]) for s in shown), *ends])
    probes = list(_probes(record, sent, axis, began or 0.0))
    notes = (
        *more(len(told) - len(shown), "pools, none of them fuller,"),
        *more(len(probes) - MOST_PROBES, "probes"),
        *(
            ()
            if began is not None
            else ("The record does not tell when the readings began: no probes are drawn.",)
        ),
    )
    return Figure(
        ID,
        TITLE,
        "The upper rows show how many tokens of each pool were in use, the dashed line a full pool. The rows "
        "below show when each probe had requests under way; a flag is the finding of that number, at the first "
        "request that it is about (neighbours share one). A leak needs pages that were used before: look for "
        "use that falls before a flag.",
        Lanes(
            (*(_rank(s, axis, began) for s in shown), *probes[:MOST_PROBES]),
            axis.moments(),
            "time since the run's first reading",
        ),
        Table.of(
            ("pool", "size, tokens", "most in use", "share", "in use at the end", "readings kept"),
            (
                (
                    s.worker,
                    number(s.pool_tokens),
                    number(s.peak_tokens),
                    _share(s),
                    number(s.last_tokens),
                    str(len(s.at_seconds)),
                )
                for s in told
            ),
        ),
        notes,
    )


def _rank(series: Series, axis: Axis, began: float | None) -> Lane:
    full = series.pool_tokens or series.peak_tokens or 1
    note = f"at most {number(series.peak_tokens)}" + (
        "" if series.pool_tokens is None else f" of {series.pool_tokens:,} ({_share(series)})"
    )
    return Lane(series.worker, note, 64, curve=_curve(series, axis, _since(series, began), full))


def _since(series: Series, began: float | None) -> Callable[[float], float]:
    """From a reading's time to the axis: a run that was cut off has parts that began at other times."""
    late = 0.0 if began is None or series.began_at is None else series.began_at - began
    return lambda at: at + late


def _curve(series: Series, axis: Axis, since: Callable[[float], float], full: int) -> Curve:
    """The area below the most, in pieces where a reading is missing: each reading holds from the one before."""
    points = [
        (
            axis.at(since(at)) * _BOX / 100,
            None if used is None else 100 - FULL * min(1.08, used / full),
        )
        for at, used in zip(series.at_seconds, series.used_tokens, strict=True)
    ]
    area, edge = [], []
    for run in _runs(points):
        steps = "".join(f"H{x:g}V{y:.4g}" for x, y in run[1:])
        (x0, y0), (x1, _) = run[0], run[-1]
        area.append(f"M{x0:g} 100V{y0:.4g}{steps}H{x1:g}V100Z")
        edge.append(f"M{x0:g} {y0:.4g}{steps}")
    return Curve("".join(area), "".join(edge))


def _runs(points: Iterable[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    for x, y in points:
        if y is not None:
            run.append((x, y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _probes(
    record: RunRecord, sent: Sequence[Exchange], axis: Axis, began: float
) -> Iterator[Lane]:
    """A row for each probe, in the order of their first requests."""
    by_probe: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in sent:
        by_probe[exchange.probe].append(exchange)
    flagged = _flagged(record)
    for probe, members in by_probe.items():
        busy = [False] * (COLUMNS + 1)
        firsts: dict[int, float] = {}
        for exchange in members:
            start = axis.at(exchange.started_at - began)
            end = axis.at(exchange.started_at + exchange.total_seconds - began)
            first, last = _column(start), _column(end)
            busy[first : last + 1] = [True] * (last + 1 - first)
            for which in flagged.get(exchange.number, ()):
                firsts[which] = min(start, firsts.get(which, start))
        flags = tuple(_flags(firsts))
        yield Lane(
            probe,
            counted(len(members), "request"),
            34 if flags else 14,
            tuple(_bars(busy)),
            flags=flags,
        )


def _flagged(record: RunRecord) -> dict[int, list[int]]:
    """Numbers of findings by the number of a request that they are about."""
    flagged: dict[int, list[int]] = defaultdict(list)
    for which, finding in enumerate(record.findings[:MAX_FINDINGS], start=1):
        for exchange in finding.exchanges:
            flagged[exchange].append(which)
    return flagged


def _column(percent: float) -> int:
    return int(percent * COLUMNS / 100)


def _bars(busy: Sequence[bool]) -> Iterator[Bar]:
    """Stretches in which at least one request was under way."""
    start = None
    for column, (now, then) in enumerate(pairwise([*busy, False])):
        if now and start is None:
            start = column
        if start is not None and not then:
            width = (column + 1 - start) * 100 / COLUMNS
            yield Bar(round(start * 100 / COLUMNS, 2), round(width, 2), Tone.KEPT, "")
            start = None


def _flags(firsts: dict[int, float]) -> Iterator[Flag]:
    """Findings by their first moment; those whose numbers would lie over one another together."""
    placed = sorted((x, which) for which, x in firsts.items())
    for group in together(((x, str(which)) for x, which in placed), _named):
        x = group[0][0]
        anchor = "start" if x < EDGE else "end" if x > 100 - EDGE else "middle"
        yield Flag(x, _named([name for _, name in group]), anchor)


def _named(numbers: Sequence[str]) -> str:
    first = " ".join(f"F{n}" for n in sorted(numbers, key=int)[:FLAGGED])
    rest = len(numbers) - FLAGGED
    return f"{first} +{rest}" if rest > 0 else first


def _fullness(series: Series) -> float:
    return (series.peak_tokens or 0) / (series.pool_tokens or series.peak_tokens or 1)


def _share(series: Series) -> str:
    if series.pool_tokens is None or series.peak_tokens is None or not series.pool_tokens:
        return "unknown"
    return percent(series.peak_tokens / series.pool_tokens)

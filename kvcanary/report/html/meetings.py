"""Picture: which prefill worker met which decode worker, and what their answers were worth."""

from collections import Counter

from kvcanary.record.exchange import DECOYS, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.report.html.fate import fate, leaking
from kvcanary.report.html.figure import Cell, Figure, Matrix, Missing, Tone, more

ID, TITLE = "meetings", "Who met whom"
MOST = 16
"""Workers in a row or column."""
BAD = (Tone.LEAK, Tone.LOST)


def draw(record: RunRecord) -> Figure | Missing:
    """Answers that could be judged, by the pair of workers that served them."""
    topology = record.topology
    if topology is None:
        return Missing(ID, TITLE, "no worker is known, so which of them were met is not.")
    if len(topology.pairs) < 2:
        pair = "one pair of workers" if topology.prefill != topology.decode else "one worker"
        return Missing(ID, TITLE, f"there is {pair} only, and every request met it.")
    if not topology.visible:
        return Missing(
            ID, TITLE, "not every worker tells its counters, so meetings cannot be seen."
        )
    leaks = leaking(record)
    good: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    unseen = 0
    for exchange in record.exchanges:
        tone = fate(exchange, leaks)
        if tone not in (*BAD, Tone.KEPT) or exchange.purpose in (Purpose.CALIBRATION, *DECOYS):
            continue
        if exchange.met is None:
            unseen += 1
            continue
        (bad if tone in BAD else good)[exchange.met.prefill, exchange.met.decode] += 1
    unified = topology.prefill == topology.decode
    prefill, decode = topology.prefill[:MOST], ("answers",) if unified else topology.decode[:MOST]
    largest = max([1, *(good + bad).values()])
    rows = tuple(
        (p, tuple(_cell(good, bad, (p, p if unified else d), largest) for d in decode))
        for p in prefill
    )
    met = sum(
        1
        for pair in topology.pairs
        if good[pair.prefill, pair.decode] + bad[pair.prefill, pair.decode]
    )
    kinds = "workers" if unified else "pairs of a prefill and a decode worker"
    return Figure(
        ID,
        TITLE,
        f"Each cell counts the answers that own their pages, of those that a pair gave. {met} of "
        f"{len(topology.pairs)} {kinds} were met: a pair that was not met is not covered by any claim.",
        Matrix("worker" if unified else "prefill \u2193  decode \u2192", decode, rows),
        notes=(
            *((f"{unseen:,} answers cannot be laid to one pair.",) if unseen else ()),
            *more(len(topology.prefill) - len(prefill), "rows"),
            *(() if unified else more(len(topology.decode) - len(decode), "columns")),
        ),
    )


def _cell(
    good: Counter[tuple[str, str]],
    bad: Counter[tuple[str, str]],
    pair: tuple[str, str],
    largest: int,
) -> Cell:
    count = good[pair] + bad[pair]
    if not count:
        return Cell("unmet", 0, Tone.OTHER)
    level = -(-4 * count // largest)
    return Cell(f"{good[pair]:,} of {count:,}", level, Tone.LEAK if bad[pair] else Tone.KEPT)

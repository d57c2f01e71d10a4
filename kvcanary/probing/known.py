"""Markers of older runs, from their records.

A whole code of this site verifies itself, whenever it was planted. Half a code cannot: it has to be looked up,
so what an older run has planted is written again from its record. Only codes are: phrases of older runs
are not looked for.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from kvcanary.canary.codes import CodeId, CodeMaker
from kvcanary.canary.recognise import Recogniser
from kvcanary.record.exchange import DECOYS, Exchange
from kvcanary.record.run import RunRecord

MAX_CODES = 200_000
"""Codes of older runs that are kept in memory (about 80 bytes each). Every one makes the odds of a part of a
code weaker, too."""


def know(recogniser: Recogniser, codes: CodeMaker, records: Sequence[RunRecord], run: int) -> None:
    """Plant the codes of older runs, the latest first.

    Records of ``run`` itself, which is resumed or replayed, add nothing.
    """
    latest = sorted(records, key=lambda record: -record.info.started_at)
    older = {record.info.run: record for record in latest if record.info.run != run}
    identities = (i for record in older.values() for i in codes_of(record))
    for identity in islice(identities, MAX_CODES):
        recogniser.know(identity, codes.make(identity))


def codes_of(record: RunRecord) -> Iterator[CodeId]:
    """Every code that stood in a prompt of the run, once."""
    sent = {exchange.number: exchange for exchange in record.exchanges}
    for exchange in sent.values():
        yield from _codes_in(exchange, record.info.run)


def _codes_in(exchange: Exchange, run: int) -> Iterator[CodeId]:
    """As ``CanaryPrompt.codes``: the sheet's, three labels, one a chapter."""
    decoy = exchange.purpose in DECOYS
    for position in range(4 + exchange.chapters_before + exchange.chapters_after):
        borrowed = decoy and position == 1
        yield CodeId(run, exchange.number + borrowed, position)

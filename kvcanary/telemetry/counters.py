"""How much work each rank of a worker has done: two readings tell who had a request, and how much of it.

What is not told is None: unknown, never 0.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kvcanary.engines.counters import DIALECTS, Counted, Dialect, dialect_of
from kvcanary.engines.documents import STARTED, started_at
from kvcanary.engines.exposition import Exposition, Malformed, Sample, parse
from kvcanary.engines.gauges import Level
from kvcanary.engines.levels import WANTED as LEVELS
from kvcanary.engines.levels import levels_in
from kvcanary.probing.client import Client

MAX_COUNT = float(1 << 53)
"""Beyond it a float skips whole numbers, and a difference would be none."""
_WANTED = frozenset({STARTED}).union(*(dialect.metrics for dialect in DIALECTS), LEVELS)

_Field = Literal["prompt_tokens", "generation_tokens", "requests"]
_FIELDS: tuple[_Field, ...] = ("prompt_tokens", "generation_tokens", "requests")


@dataclass(frozen=True, slots=True)
class RankCounters:
    """Counters, or their growth. ``rank``: the DP rank; None where the engine tells no ranks apart."""

    rank: int | None
    prompt_tokens: float | None
    generation_tokens: float | None
    requests: float | None


class _Sums:
    """Of the whole worker: its own counter where it has one, else the sum over its ranks."""

    __slots__ = ()
    ranks: tuple[RankCounters, ...]
    whole: RankCounters | None

    @property
    def prompt_tokens(self) -> float | None:
        """Prompt tokens, cached ones included; None when unknown."""
        return self._sum("prompt_tokens")

    @property
    def generation_tokens(self) -> float | None:
        """Generated tokens; None when unknown."""
        return self._sum("generation_tokens")

    @property
    def requests(self) -> float | None:
        """Finished requests; None when unknown."""
        return self._sum("requests")

    def _sum(self, field: _Field) -> float | None:
        if self.whole is not None:
            return _value(self.whole, field)
        values = [_value(rank, field) for rank in self.ranks]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class WorkerCounters(_Sums):
    """One reading of a worker.

    Attributes:
        started_at: ``process_start_time_seconds``, since 1970.
        ranks: sorted by rank. With several ranks SGLang's are its schedulers' counts: brought up to
            date when they log, without first tokens and without requests.
        whole: the worker's own counters where the ranks are counted apart from them; exact.
        levels: how full each rank was then, and how busy.
    """

    url: str
    started_at: float | None
    ranks: tuple[RankCounters, ...]
    whole: RankCounters | None = None
    levels: tuple[Level, ...] = ()

    @property
    def open_requests(self) -> int | None:
        """Above 0 when any is running, queued or on its way; None when some rank does not tell."""
        told = [(level.running, level.queued) for level in self.levels]
        if not told or any(None in pair for pair in told):
            return None
        return sum((running or 0) + (queued or 0) for running, queued in told)

    @property
    def used_tokens(self) -> int | None:
        """Tokens of its pools that requests hold; None when some rank does not tell."""
        told = [level.used_tokens for level in self.levels]
        return sum(n for n in told if n is not None) if told and None not in told else None


@dataclass(frozen=True, slots=True)
class WorkerMoves(_Sums):
    """How far a worker's counters went between two readings; as `WorkerCounters` otherwise."""

    url: str
    ranks: tuple[RankCounters, ...]
    whole: RankCounters | None = None


async def read_counters(
    client: Client,
    url: str,
    *,
    metrics_url: str | None = None,
    with_key: bool = False,
    deadline_seconds: float = 5.0,
) -> WorkerCounters | None:
    """The counters of the worker at ``url`` (without ``/metrics``); None when it does not tell them.

    ``metrics_url``: where its metrics are, when elsewhere than at ``/metrics``.
    """
    url = url.rstrip("/")
    reply = await client.get_text(
        metrics_url or f"{url}/metrics", with_key=with_key, deadline_seconds=deadline_seconds
    )
    return None if reply.text is None else counters_in(url, reply.text)


def counters_in(url: str, text: str) -> WorkerCounters | None:
    """The counters in the text of ``/metrics``; None when no engine's can be read from it."""
    page = parse(text, only=_WANTED)
    if isinstance(page, Malformed):
        return None
    dialect = dialect_of({sample.name for sample in page.samples})
    if dialect is None:
        return None
    ranks, whole = _rows(page, dialect)
    return WorkerCounters(url, started_at(page), ranks, whole, levels_in(page))


def moved(before: WorkerCounters, after: WorkerCounters) -> WorkerMoves | None:
    """How far each counter went; one that either reading lacks is None.

    None for everything when the process began anew in between: its start time is another, or a counter
    went down. An engine that tells no start time and has done more since than before goes unnoticed.
    """
    if (before.url, before.started_at) != (after.url, after.started_at):
        return None
    was = {row.rank: row for row in _all(before)}
    steps = [_step(was.get(row.rank), row) for row in _all(after)]
    if any((_value(step, field) or 0.0) < 0 for step in steps for field in _FIELDS):
        return None
    ranks = tuple(steps[: len(after.ranks)])
    whole = steps[-1] if after.whole is not None else None
    return WorkerMoves(after.url, ranks, whole)


def _all(counters: WorkerCounters) -> tuple[RankCounters, ...]:
    """The ranks, then the whole; a worker without ranks has one row, whose rank is None as well."""
    return counters.ranks if counters.whole is None else (*counters.ranks, counters.whole)


def _step(was: RankCounters | None, now: RankCounters) -> RankCounters:
    steps: list[float | None] = []
    for field in _FIELDS:
        old = None if was is None else _value(was, field)
        new = _value(now, field)
        steps.append(None if old is None or new is None else new - old)
    return RankCounters(now.rank, *steps)


def _value(row: RankCounters, field: _Field) -> float | None:
    value: float | None = getattr(row, field)
    return value


def _rows(
    page: Exposition, dialect: Dialect
) -> tuple[tuple[RankCounters, ...], RankCounters | None]:
    """The ranks' counters, and the worker's own where they are counted apart."""
    seen = {_rank(sample, dialect) for metric in dialect.metrics for sample in page.named(metric)}
    own = [
        _by_rank(page, dialect, counted)
        for counted in (dialect.prompt_tokens, dialect.generation_tokens, dialect.requests)
    ]
    told = set[int | None]().union(*own)
    numbered = sorted(rank for rank in seen if rank is not None)
    if not numbered:
        return (_row(None, own),), None
    if told - {None}:
        ranks = [*([None] if None in told else []), *numbered]
        return tuple(_row(rank, own) for rank in ranks), None
    scheduled = [
        _by_rank(page, dialect, counted)
        for counted in (dialect.rank_prompt_tokens, dialect.rank_generation_tokens, None)
    ]
    return tuple(_row(rank, scheduled) for rank in numbered), _row(None, own)


def _row(rank: int | None, counters: Sequence[Mapping[int | None, float | None]]) -> RankCounters:
    prompt_tokens, generation_tokens, requests = (values.get(rank) for values in counters)
    return RankCounters(rank, prompt_tokens, generation_tokens, requests)


def _by_rank(
    page: Exposition, dialect: Dialect, counted: Counted | None
) -> dict[int | None, float | None]:
    """One counter's value by rank; None where it is no count."""
    if counted is None:
        return {}
    ranks: dict[int | None, list[Sample]] = {}
    for sample in page.named(counted.metric):
        if counted.label is None or sample.label(counted.label) in counted.values:
            ranks.setdefault(_rank(sample, dialect), []).append(sample)
    return {rank: _count(_first_copies(found, dialect)) for rank, found in ranks.items()}


def _first_copies(samples: Sequence[Sample], dialect: Dialect) -> list[Sample]:
    """The series of the first scheduler of a rank: with
    ``--enable-metrics-for-all-schedulers`` its others count the same work."""

    def copy(sample: Sample) -> tuple[int, ...]:
        return tuple(_number(sample.label(label)) or 0 for label in dialect.copy_labels)

    first = min(copy(sample) for sample in samples)
    return [sample for sample in samples if copy(sample) == first]


def _count(samples: Sequence[Sample]) -> float | None:
    total = sum(sample.value for sample in samples)
    # each for itself: a negative one could hide in the sum
    return total if all(0 <= s.value <= MAX_COUNT for s in samples) and total <= MAX_COUNT else None


def _rank(sample: Sample, dialect: Dialect) -> int | None:
    return _number(sample.label(dialect.rank_label))


def _number(label: str | None) -> int | None:
    return int(label) if label is not None and re.fullmatch("[0-9]{1,6}", label) else None

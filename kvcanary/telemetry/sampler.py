"""Reads each worker's pool and queues at regular times while a run lasts.

One task for each worker, with one reading under way at most, so a worker that hangs costs its own readings
only. The sampler has connections of its own: a probe never waits for them.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from kvcanary.deployment.facts import Worker
from kvcanary.deployment.target import KnownWorker, PrometheusServer
from kvcanary.engines import catalogue
from kvcanary.engines.documents import Documents, Want
from kvcanary.engines.exposition import Exposition, parse
from kvcanary.engines.gauges import Level
from kvcanary.engines.levels import PAGE, WANTED, levels_of, wants_of
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint
from kvcanary.record.series import Series
from kvcanary.telemetry.prometheus import Prometheus
from kvcanary.telemetry.track import Track

INTERVAL_SECONDS = 1.0
SECONDS_PER_WORKER = 0.1
"""With many workers the interval is longer: a reading takes some milliseconds of the loop's time."""
READING_SECONDS = 5.0
"""Longest wait for one document."""
LAST_SECONDS = 2.0
"""Longest wait for the reading after the run."""
METRICS = WANTED | catalogue.METRICS
SOURCE = "the worker's own figures"


class Sampler:
    """Samples while its ``async with`` block lasts, and once more at its end.

    Args:
        known: workers that a person named: some have keys of their own.
        prometheus: asked at the end for workers that told nothing themselves.
        names: short names of the workers by URL.
        with_key: send the endpoint's key to the workers.
        interval_seconds: None: as the number of workers has it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        workers: Sequence[Worker],
        names: Mapping[str, str],
        *,
        with_key: bool,
        known: Sequence[KnownWorker] = (),
        prometheus: PrometheusServer | None = None,
        interval_seconds: float | None = None,
    ) -> None:
        self._workers = tuple(worker for worker in workers if worker.url.startswith("http"))
        self._names, self._with_key = names, with_key
        self._interval = interval_seconds or max(
            INTERVAL_SECONDS, SECONDS_PER_WORKER * len(self._workers)
        )
        self._client = Client(endpoint, concurrency=2 * len(self._workers) + 1)
        self._own = {
            k.url.removesuffix("/v1"): Client(
                replace(endpoint, api_key=k.api_key, headers=()), concurrency=2
            )
            for k in known
            if k.api_key
        }
        self._tracks: dict[str, dict[int | None, Track]] = {w.url: {} for w in self._workers}
        self._unanswered: dict[str, int] = dict.fromkeys(self._tracks, 0)
        self._prometheus = None if prometheus is None else Prometheus(prometheus)
        self._elsewhere: tuple[Series, ...] = ()
        self._tasks: list[asyncio.Task[None]] = []
        self._began = 0.0
        self._began_at = 0.0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._began, self._began_at = loop.time(), time.time()
        for number, worker in enumerate(self._workers):
            offset = self._interval * number / len(self._workers)
            self._tasks.append(loop.create_task(self._watch(worker, offset)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if error is None or isinstance(error, Exception):
                await asyncio.gather(*(self._read(w, LAST_SECONDS) for w in self._workers))
                await self._ask_prometheus()
        finally:
            for client in (self._client, *self._own.values()):
                await client.__aexit__()

    async def _watch(self, worker: Worker, offset: float) -> None:
        """Read at fixed times; one that passes while a reading is under way is left out."""
        now = asyncio.get_running_loop().time
        tick = 0
        while True:
            await asyncio.sleep(self._began + offset + tick * self._interval - now())
            await self._read(worker, READING_SECONDS)
            passed = (now() - self._began - offset) / self._interval
            tick = max(tick + 1, math.ceil(passed))

    async def _read(self, worker: Worker, seconds: float) -> None:
        own = self._own.get(worker.url)
        with_key = self._with_key or own is not None
        levels = await read_levels(own or self._client, worker, with_key, seconds)
        at = asyncio.get_running_loop().time() - self._began
        if not levels:
            self._unanswered[worker.url] += 1
        for level in levels:
            self._tracks[worker.url].setdefault(level.rank, Track()).add(at, level)

    async def _ask_prometheus(self) -> None:
        silent = {url: self._names[url] for url, tracks in self._tracks.items() if not tracks}
        if self._prometheus is None or not silent:
            return
        seconds = asyncio.get_running_loop().time() - self._began
        found = await self._prometheus.workers()
        self._elsewhere = await self._prometheus.series(found, silent, seconds)

    def series(self) -> tuple[Series, ...]:
        """What was read, rank by rank. A worker that told nothing has one series without steps."""
        own = (
            series
            for url, tracks in self._tracks.items()
            for series in _series(self._names[url], tracks, self._unanswered[url])
        )
        elsewhere = {series.worker.partition(".")[0] for series in self._elsewhere}
        told = (series for series in own if series.worker not in elsewhere)
        return tuple(
            series.model_copy(update={"began_at": self._began_at})
            for series in (*told, *self._elsewhere)
        )


def _series(name: str, tracks: Mapping[int | None, Track], unanswered: int) -> Sequence[Series]:
    ranks: Mapping[int | None, Track] = tracks or {None: Track()}
    alone = len(ranks) == 1
    return [
        track.series(name if alone else f"{name}.{rank}", SOURCE, unanswered)
        for rank, track in sorted(
            ranks.items(), key=lambda item: -1 if item[0] is None else item[0]
        )
    ]


async def read_levels(
    client: Client, worker: Worker, with_key: bool, seconds: float
) -> tuple[Level, ...]:
    """How full each rank of a worker is now; empty when it does not tell."""
    values: dict[str, object] = {}
    pages: dict[str, Exposition] = {}

    async def ask(want: Want) -> None:
        url = f"{worker.url}{want.path}"
        if not want.metrics:
            reply = await client.get_json(url, with_key=with_key, deadline_seconds=seconds)
            values[want.path] = reply.value
            return
        if want == PAGE:
            url = worker.metrics_at
        text = await client.get_text(url, with_key=with_key, deadline_seconds=seconds)
        page = parse(text.text, only=METRICS) if text.text is not None else None
        if isinstance(page, Exposition):
            pages[want.path] = page

    await asyncio.gather(*(ask(want) for want in wants_of(worker.engine)))
    return levels_of(worker, Documents(values, pages))

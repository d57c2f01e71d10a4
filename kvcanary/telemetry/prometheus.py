"""What a Prometheus server knows of a deployment: its targets, their last scrapes, their pools over time.

A target's last scrape is given as the same `Exposition` that a direct one gives, so engines are read alike.
What is too old by the server's own clock, or of a target that was down, is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kvcanary.deployment.facts import Role
from kvcanary.deployment.target import PrometheusServer
from kvcanary.engines.exposition import Exposition, Sample
from kvcanary.engines.levels import WANTED, levels_in
from kvcanary.errors import UsageError
from kvcanary.probing.endpoint import normalised_url
from kvcanary.probing.outcome import Reason
from kvcanary.record.series import Series
from kvcanary.telemetry.track import Track

if (
    TYPE_CHECKING
):  # few runs have a Prometheus server, and `requests` takes a tenth of a second to import
    from kvcanary.telemetry.prometheus_api import PrometheusApi, Row, Rows, Scrape

STALE_SECONDS = 120.0
"""A scrape older than this says nothing of now. Prometheus scrapes every minute unless told otherwise."""
CHUNK_SECONDS = 600.0
"""Of a series, so much is asked for at once."""
MAX_CHUNKS = 144
SOURCE = "Prometheus"

Labels = tuple[tuple[str, str], ...]
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ROLES = {
    "prefill": Role.PREFILL,
    "decode": Role.DECODE,
    "unified": Role.UNIFIED,
    "regular": Role.UNIFIED,
    "both": Role.UNIFIED,
}


@dataclass(frozen=True, slots=True)
class ScrapedWorker:
    """A target of the deployment.

    Attributes:
        url: the worker's address, as its scrape's says it; None where that is no plain one.
        metrics_url: where it is scraped, when not at ``/metrics`` of `url`.
        role: what the role label says; None where it says nothing known.
        fresh: it was up at its last scrape, and that was not long ago.
        labels: that the server gives all its series.
    """

    url: str | None
    metrics_url: str | None
    role: Role | None
    fresh: bool
    labels: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Found:
    """The targets, and in words what could not be had."""

    workers: tuple[ScrapedWorker, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScrapedPage:
    """What the last scrape of a worker said, under the engine's own labels."""

    url: str
    page: Exposition


class Prometheus:
    """Reads one server. Never raises for what a server does: it says what could not be had.

    Raises:
        UsageError: a name in a selector is no label's.
    """

    def __init__(self, server: PrometheusServer, api: PrometheusApi | None = None) -> None:
        if api is None:
            from kvcanary.telemetry.prometheus_api import PrometheusApi

            api = PrometheusApi(server)
        self._server, self._api = server, api
        self._selector = _matchers(server.selector)

    async def workers(self) -> Found:
        """Every target that the selector names, up or not."""
        if not self._server.selector:
            return Found(
                notes=(self._note("has no selector: which targets are this deployment's?"),)
            )
        up = await self._api.query(f"up{{{self._selector}}}")
        scraped = await self._api.query(f"timestamp(up{{{self._selector}}})")
        if isinstance(up, Reason) or isinstance(scraped, Reason):
            reason = up if isinstance(up, Reason) else scraped
            return Found(notes=(self._note(f"did not tell its targets ({reason})."),))
        if not up:
            return Found(notes=(self._note("scrapes no target that the selector names."),))
        scrapes = await self._api.targets()
        addresses = () if isinstance(scrapes, Reason) else scrapes
        ages = {_key(row.labels): _age(row) for row in scraped}
        workers = tuple(self._worker(row, ages, addresses) for row in up)
        return Found(workers, tuple(self._doubts(workers)))

    def _worker(
        self, row: Row, ages: Mapping[Labels, float], scrapes: Iterable[Scrape]
    ) -> ScrapedWorker:
        labels = dict(_key(row.labels))
        age = ages.get(_key(labels))
        fresh = row.points[-1][1] == 1 and age is not None and 0 <= age <= STALE_SECONDS
        role = _ROLES.get(labels.get(self._server.role_label or "", "").lower())
        return ScrapedWorker(*_addresses(labels, scrapes), role, fresh, labels)

    def _doubts(self, workers: Iterable[ScrapedWorker]) -> Iterable[str]:
        workers = tuple(workers)
        old = [w for w in workers if not w.fresh]
        if old:
            yield self._note(
                f"says of {len(old)} of {len(workers)} targets nothing that counts: they were down, or "
                f"scraped last more than {STALE_SECONDS:.0f} s ago."
            )
        if any(w.url is None for w in workers):
            yield self._note("has targets without a plain http(s) address.")
        if self._server.role_label and any(w.role is None for w in workers):
            yield self._note(
                "has targets whose role label says neither prefill, decode nor unified."
            )

    async def pages(self, metrics: Collection[str], found: Found) -> tuple[ScrapedPage, ...]:
        """The last scrape of each fresh worker, as far as these metrics go; a worker without any has none."""
        fresh = {_instance(w.labels): w for w in found.workers if w.fresh and w.url}
        if not fresh:
            return ()
        rows = await self._api.query(f"{{{_names(metrics)},{self._selector}}}")
        if isinstance(rows, Reason):
            return ()
        pages: dict[str, list[Sample]] = {}
        for row in rows:
            worker = fresh.get(_instance(row.labels))
            if worker is not None and worker.url:
                sample = _sample(row.labels, row.points[-1][1], worker.labels)
                pages.setdefault(worker.url, []).append(sample)
        return tuple(ScrapedPage(url, Exposition(tuple(page))) for url, page in pages.items())

    async def series(
        self, found: Found, names: Mapping[str, str], seconds: float
    ) -> tuple[Series, ...]:
        """The pools of these workers (short names by URL) over the last so many seconds, as it scraped them."""
        workers = {_instance(w.labels): w for w in found.workers if w.url in names}
        now = await self._api.query("vector(time())")
        if isinstance(now, Reason) or not now or not workers:
            return ()
        end = now[0].points[-1][1]
        tracks: dict[str, dict[int | None, Track]] = {}
        latest: dict[str, float] = {}
        for rows in await self._chunks(end, seconds):
            for worker, moments in _moments(rows, workers):
                name = names[worker.url or ""]
                mine = tracks.setdefault(name, {})
                for at, samples in moments:
                    if at <= latest.get(name, 0.0):  # the pieces touch
                        continue
                    latest[name] = at
                    for level in levels_in(Exposition(tuple(samples))):
                        mine.setdefault(level.rank, Track()).add(at - end + seconds, level)
        return tuple(
            track.series(name if rank is None else f"{name}.{rank}", SOURCE)
            for name, ranks in tracks.items()
            for rank, track in ranks.items()
        )

    async def _chunks(self, end: float, seconds: float) -> list[Rows]:
        """Raw samples with the times of their scrapes, oldest first."""
        chunks: list[Rows] = []
        left = seconds
        while left > 0 and len(chunks) < MAX_CHUNKS:
            length = min(CHUNK_SECONDS, left)
            query = f"{{{_names(WANTED)},{self._selector}}}[{length * 1_000:.0f}ms]"
            rows = await self._api.query(query, at=end - left + length)
            if isinstance(rows, Reason):
                break
            chunks.append(rows)
            left -= length
        return chunks

    async def latest(self, metrics: Collection[str], selector: Labels) -> Exposition | Reason:
        """The latest samples of metrics, with all labels that the server has given them."""
        rows = await self._api.query(f"{{{_names(metrics)},{_matchers(selector)}}}")
        if isinstance(rows, Reason):
            return rows
        return Exposition(tuple(_sample(row.labels, row.points[-1][1], {}) for row in rows))

    async def ages(self, metric: str, selector: Labels) -> tuple[tuple[Labels, float], ...]:
        """How old the latest sample of each series of a metric is, in seconds, by labels without a name."""
        rows = await self._api.query(f"timestamp({metric}{{{_matchers(selector)}}})")
        return () if isinstance(rows, Reason) else tuple((_key(r.labels), _age(r)) for r in rows)

    def _note(self, what: str) -> str:
        return f"Prometheus at {self._server.url} {what}"


def _names(metrics: Collection[str]) -> str:
    return f'__name__=~"{"|".join(sorted(metrics))}"'


def _matchers(selector: Labels) -> str:
    for name, _ in selector:
        if not _LABEL.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of a Prometheus label: letters, digits and _ only."
            )
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in selector)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "__name__"))


def _instance(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    return labels.get("job"), labels.get("instance")


def _age(row: Row) -> float:
    asked_at, scraped_at = row.points[-1]
    return asked_at - scraped_at


def _sample(labels: Mapping[str, str], value: float, targets: Mapping[str, str]) -> Sample:
    """Under the engine's own labels: Prometheus adds the target's, and renames what they would hide."""
    own = {
        name.removeprefix("exported_") if name.removeprefix("exported_") in targets else name: text
        for name, text in labels.items()
        if name not in targets and name != "__name__"
    }
    return Sample(labels.get("__name__", ""), tuple(sorted(own.items())), value)


def _addresses(
    labels: Mapping[str, str], scrapes: Iterable[Scrape]
) -> tuple[str | None, str | None]:
    """Where a target is, and where it is scraped if that is not ``/metrics`` there; a store that does not
    scrape tells the instance only."""
    wanted = _key(labels)
    told = next((s.url for s in scrapes if _key(s.labels) == wanted), None)
    try:
        scraped = normalised_url(
            (told or f"http://{labels.get('instance', '')}/metrics").partition("?")[0]
        )
    except UsageError:
        return None, None
    if scraped.endswith("/metrics"):
        return scraped.removesuffix("/metrics"), None
    parts = urlsplit(scraped)
    return f"{parts.scheme}://{parts.netloc}", scraped


def _moments(
    rows: Rows, workers: Mapping[tuple[str | None, str | None], ScrapedWorker]
) -> Iterable[tuple[ScrapedWorker, list[tuple[float, list[Sample]]]]]:
    """By worker, the samples of each scrape: all of one scrape have the same time."""
    found: dict[tuple[str | None, str | None], dict[float, list[Sample]]] = {}
    for row in rows:
        worker = workers.get(_instance(row.labels))
        if worker is None:
            continue
        scrapes = found.setdefault(_instance(row.labels), {})
        for at, value in row.points:
            scrapes.setdefault(at, []).append(_sample(row.labels, value, worker.labels))
    for instance, scrapes in found.items():
        yield workers[instance], sorted(scrapes.items(), key=lambda scrape: scrape[0])

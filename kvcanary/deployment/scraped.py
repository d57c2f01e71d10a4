"""What a Prometheus server tells of the workers: where they are, and what their metrics last said."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvcanary.deployment.routers import MAX_WORKERS, Listed
from kvcanary.engines import catalogue
from kvcanary.engines.exposition import Exposition
from kvcanary.telemetry.prometheus import Prometheus


@dataclass(frozen=True, slots=True)
class Scraped:
    """The targets of one deployment. A target without a plain address is a worker that cannot be asked.

    Attributes:
        pages: the last metrics of each, by its URL, as far as engines read them; none that are old.
    """

    workers: tuple[Listed, ...] = ()
    pages: Mapping[str, Exposition] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()


async def scraped(reader: Prometheus | None, *, trusted: bool) -> Scraped:
    """Everything that the server tells; nothing without one. ``trusted``: the workers may have the key."""
    if reader is None:
        return Scraped()
    found = await reader.workers()
    pages = await reader.pages(catalogue.METRICS, found)
    return Scraped(
        tuple(Listed(w.url, w.role, w.metrics_url, trusted) for w in found.workers[:MAX_WORKERS]),
        {page.url: page.page for page in pages},
        found.notes,
    )

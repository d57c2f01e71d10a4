"""How many tokens are in use in all decode pools now: the workers' own figures."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kvcanary.deployment.asking import Asker
from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.deployment.routers import Listed
from kvcanary.deployment.target import KnownWorker
from kvcanary.engines import catalogue
from kvcanary.probing.client import Client
from kvcanary.probing.tracebacks import Unseen

USE_SECONDS = 5.0


def make_gauge(
    client: Client,
    facts: Facts,
    known: Sequence[KnownWorker] = (),
    *,
    trust_discovered: bool = False,
) -> Callable[[], Awaitable[int | None]] | None:
    """Reads the sum over all workers that decode; None where one of them cannot tell its use."""
    decoders = [w for w in facts.workers if w.role in (Role.DECODE, Role.UNIFIED)]
    if not decoders or any(w.used_tokens is None for w in decoders):
        return None

    async def read() -> int | None:
        uses = await asyncio.gather(
            *(used_tokens(client, w, known, trust_discovered=trust_discovered) for w in decoders)
        )
        told = [use for use in uses if use is not None]
        return sum(told) if len(told) == len(uses) else None

    return read


def fullest_pool(
    client: Client,
    facts: Facts,
    known: Sequence[KnownWorker] = (),
    *,
    trust_discovered: bool = False,
) -> Callable[[], Awaitable[float | None]]:
    """Reads how full the fullest pool is, 0 to 1; None unless every worker tells."""

    async def read() -> float | None:
        workers = [w for w in facts.workers if w.pool_tokens]
        if not workers or len(workers) < len(facts.workers):
            return None
        used = await asyncio.gather(
            *(used_tokens(client, w, known, trust_discovered=trust_discovered) for w in workers)
        )
        parts = [
            None if tokens is None else tokens / (w.pools * (w.pool_tokens or 1))
            for w, tokens in zip(workers, used, strict=True)
        ]
        told = [part for part in parts if part is not None]
        return max(told) if len(told) == len(parts) else None

    return read


async def used_tokens(
    client: Client,
    worker: Worker,
    known: Sequence[KnownWorker] = (),
    *,
    trust_discovered: bool = False,
) -> int | None:
    """Tokens in use on one worker now, all ranks together; None when it does not tell."""
    engine = catalogue.named(worker.engine)
    if engine is None or not engine.use:
        return None
    place = place_of(worker, known, trust_discovered=trust_discovered)
    async with Asker(client, USE_SECONDS) as asker:
        documents = await asker.use(place, engine.use)
    with Unseen():
        return engine.worker(worker.url, documents, worker.role).used_tokens


def place_of(worker: Worker, known: Sequence[KnownWorker], *, trust_discovered: bool) -> Listed:
    """Where a worker is asked, and with which key."""
    listed = next((k for k in known if k.url == worker.url), None)
    return Listed(
        url=worker.url,
        role=worker.role,
        metrics_url=worker.metrics_url,
        trusted=trust_discovered or (listed is not None and listed.api_key is not None),
        api_key=listed.api_key if listed else None,
    )

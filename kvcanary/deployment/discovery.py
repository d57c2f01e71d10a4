"""From a front door to the facts: what it serves, which workers stand behind it, what they hold."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment import routers
from kvcanary.deployment.asking import Answers, Asker, came, together
from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.deployment.routers import Listed, Listing
from kvcanary.deployment.scraped import Scraped, scraped
from kvcanary.deployment.target import KnownWorker
from kvcanary.engines import catalogue, openai, trtllm
from kvcanary.engines.documents import Documents
from kvcanary.engines.fingerprint import fingerprint
from kvcanary.errors import Unauthorized, Unreachable
from kvcanary.probing.client import Client, JsonReply
from kvcanary.probing.endpoint import UNNAMED, Endpoint
from kvcanary.probing.outcome import Reason
from kvcanary.probing.tracebacks import Unseen
from kvcanary.telemetry.prometheus import Prometheus

METADATA_SECONDS = 5.0
"""Longest wait for one metadata document."""
DOCUMENTS_DEEP = 6
"""The whole of the workers may take so many times as long as one document: they are asked in parallel."""
NO_WORKER = (
    "No worker could be discovered: the front door lists none (/workers, /list_workers, /health) and is none "
    "itself (/server_info, /props, /info, /metrics). Name them, or a Prometheus server, in a deployment file."
)
UNCONFIRMED = "The front door lists {listed} {role} workers and the deployment file names {known}: name them all."


async def model_list(client: Client, deadline_seconds: float = METADATA_SECONDS) -> JsonReply:
    """``/v1/models``, or why there is no such list."""
    url = f"{client.endpoint.base_url}/models"
    return await client.get_json(url, with_key=True, deadline_seconds=deadline_seconds)


def raise_unless_asked(endpoint: Endpoint, listing: JsonReply) -> None:
    """Raise Unreachable or Unauthorized when the list of models says that nobody could be asked."""
    asked = f"GET {endpoint.base_url}/models"
    if listing.reason is Reason.UNAUTHORIZED:
        raise Unauthorized(f"{asked}: the credentials were refused. Check the API key.")
    if listing.reason in _NOT_ASKED:
        raise Unreachable(f"{asked}: {_NOT_ASKED[listing.reason]}.")


_NOT_ASKED = {
    Reason.UNKNOWN_HOST: "the host name is not known here. Check the URL's host, and the DNS of this machine",
    Reason.CONNECTION_REFUSED: "the connection was refused. Check that the server runs and the port is right",
    Reason.TLS: "TLS failed. Check the server's certificate (for a private authority, give --ca-file), and "
    "that http and https are not mixed up",
    Reason.UNREACHABLE: "no connection could be made. Check the host, the port and the network in between",
    Reason.CONNECT_TIMEOUT: "no connection came about in time. Check the host, the port and firewalls",
    Reason.DEADLINE: "no answer came in time. Check that the server is ready, or name the model with --model",
}
_NO_CONNECTION = frozenset(_NOT_ASKED) - {Reason.DEADLINE}


async def discover(
    client: Client,
    context_tokens: int | None,
    *,
    context_source: str = "--context",
    trust_discovered: bool = False,
    workers: Sequence[KnownWorker] = (),
    prometheus: Prometheus | None = None,
    site_key: SiteKey | None = None,
    deadline_seconds: float = METADATA_SECONDS,
) -> Facts:
    """Ask the front door, then each worker that it or the person names.

    Raises Unreachable where no worker is known and no connection to the front door can be made, and
    Unreachable or Unauthorized where the context limit stays unknown because nobody could be asked.

    Args:
        context_source: who promised ``context_tokens``.
        trust_discovered: send the front door's key to workers that only the front door names.
        workers: those that a person named. They take the place of the front door's list: its addresses may
            not be reachable from here.
        prometheus: tells of workers where neither a person nor the front door does, and of metrics that cannot
            be had from here.
        site_key: makes the fingerprints of configurations; without it there are none.
        deadline_seconds: longest wait for each document.
    """
    root = client.endpoint.base_url.removesuffix("/v1")
    async with Asker(client, deadline_seconds) as asker:
        models, told = await asyncio.gather(
            model_list(client, deadline_seconds), scraped(prometheus, trusted=trust_discovered)
        )
        scene = _Scene(
            asker, client.endpoint, root, trust_discovered, site_key, told, deadline_seconds
        )
        found = await scene.ask(models, workers)
    listed = [m for m in openai.models(models.value) if m.name == client.endpoint.model]
    advertised = listed[0].context_tokens if listed else None
    if context_tokens is not None:
        context, source = context_tokens, context_source
    elif advertised is not None:
        context, source = advertised, "/v1/models max_model_len"
    else:
        known = [w.context_tokens for w in found.workers if w.context_tokens]
        context, source = max(known, default=0), "the workers' context length"
    if not context or (not found.workers and models.reason in _NO_CONNECTION):
        raise_unless_asked(client.endpoint, models)
    return Facts(
        context_tokens=context or None,
        context_source=source if context else "unknown",
        workers=found.workers,
        front_door=found.front_door,
        notes=(*_no_list(client.endpoint, models, found), *found.notes, *told.notes),
    )


def _no_list(endpoint: Endpoint, models: JsonReply, found: "_Found") -> tuple[str, ...]:
    """What came in place of the list of models from a server that is nothing else that is known either."""
    if found.workers or openai.models(models.value):
        return ()
    what = "no list of models" if models.value is not None else came(models)
    hint = "Is this the base URL of an OpenAI-compatible server, usually ending in /v1?"
    if models.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "Check the API key."
    return (f"GET {endpoint.base_url}/models: {what}. {hint}",)


@dataclass(frozen=True, slots=True)
class _Found:
    """The workers, known or not, and notes on those that are not."""

    workers: tuple[Worker, ...] = ()
    front_door: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Scene:
    """One deployment as it is asked."""

    asker: Asker
    endpoint: Endpoint
    root: str
    trusted: bool
    site_key: SiteKey | None
    scraped: Scraped
    deadline_seconds: float

    async def ask(self, models: JsonReply, known: Sequence[KnownWorker]) -> _Found:
        """Every worker behind the front door, or the front door as the only one."""
        door = Answers()
        if models.status is not None:
            wants = (routers.WORKERS, routers.LIST, routers.MANAGER)
            door = await self.asker.front_door(self.root, wants, {openai.MODELS: models})
        listing = _listing(door.documents)
        if known:
            return await self._named(listing, known)
        if listing.router:
            return await self._behind(listing)
        if self.scraped.workers:
            return await self._behind(Listing(workers=self.scraped.workers))
        return await self._alone(door) if models.status is not None else _Found(notes=(NO_WORKER,))

    async def _named(self, listing: Listing, known: Sequence[KnownWorker]) -> _Found:
        """Workers that a person named; one that the front door has beside them is unknown."""
        places = [
            Listed(
                k.url.removesuffix("/v1"),
                k.role,
                k.metrics_url,
                bool(k.api_key) or self.trusted,
                k.api_key,
            )
            for k in known
        ]
        not_asked = {
            place.url: (trtllm.PAGE.path,)
            for place, k in zip(places, known, strict=True)
            if place.url and k.engine == trtllm.NAME
        }
        workers, notes = await self._workers(places, Documents(), not_asked)
        missing: list[Listed] = []
        for role in Role:
            listed = sum(place.role is role for place in listing.workers)
            told = sum(k.role is role for k in known)
            if listed > told:
                notes.append(UNCONFIRMED.format(listed=listed, role=role, known=told))
                missing += [Listed(None, role)] * (listed - told)
        return _Found((*workers, *_nowhere(missing)), listing.router, tuple(notes))

    async def _behind(self, listing: Listing) -> _Found:
        """Workers that a router lists."""
        wants = (routers.ENGINE_PAGE,) if listing.router == routers.SGLANG_ROUTER else ()
        if listing.router == routers.DYNAMO:
            wants = (routers.PAGE,)
        shown = (
            (await self.asker.front_door(self.root, wants, {})).documents if wants else Documents()
        )
        places = [
            Listed(place.url, place.role, trusted=self.trusted)
            for place in listing.workers
            if place.url
        ]
        workers, notes = await self._workers(places, shown, {})
        nowhere = _nowhere([place for place in listing.workers if not place.url])
        if listing.router == routers.DYNAMO and len(nowhere) == 1:
            nowhere = (_only_instance(nowhere[0], shown),)
        return _Found((*workers, *nowhere), listing.router, (*listing.notes, *notes))

    async def _alone(self, door: Answers) -> _Found:
        """The front door as a worker of its own, or as Dynamo's frontend."""
        place = Listed(self.root, trusted=True)
        answers = await self.asker.worker(place, door)
        with Unseen():
            if engine := catalogue.engine_of(answers.documents):
                worker = self._described(place, answers)
                return _Found((worker,), engine.name, tuple(self._notes(place, worker, answers)))
        health = await self.asker.front_door(self.root, (routers.HEALTH,), {})
        listing = _listing(health.documents)
        if listing.router and listing.workers:
            return await self._behind(listing)
        return _Found(notes=(NO_WORKER,))

    async def _workers(
        self, places: Sequence[Listed], shown: Documents, not_asked: Mapping[str, tuple[str, ...]]
    ) -> tuple[list[Worker], list[str]]:
        """Asks all of them at once. Metrics that cannot be had from one itself are those that Prometheus
        scraped, or those that the router shows (``shown``)."""
        seconds = DOCUMENTS_DEEP * self.deadline_seconds
        answered = await together(self.asker, places, not_asked, seconds)
        workers, notes = [], []
        for place, own in zip(places, answered, strict=True):
            answers, url = own, place.url or ""
            page = self.scraped.pages.get(url) or routers.page_of(
                shown.page(routers.ENGINE_PAGE), url
            )
            if page.samples and not any(p.samples for p in own.documents.pages.values()):
                pages = {routers.PAGE.path: page}
                answers = Answers(Documents(own.documents.values, pages), own.why, own.is_there)
            with Unseen():
                worker = self._described(place, answers)
                notes += self._notes(place, worker, answers)
            workers.append(worker)
        return workers, notes

    def _described(self, place: Listed, answers: Answers) -> Worker:
        """The worker as its documents have it. Of its names only the one that is under test is kept."""
        documents, engine = answers.documents, catalogue.engine_of(answers.documents)
        worker = catalogue.described(place.url or "", documents, place.role)
        arguments = engine.arguments(documents) if engine else None
        mark = None
        if self.site_key and engine and arguments:
            mark = fingerprint(self.site_key, engine.name, arguments)
        asked = self.endpoint.model in _names(worker, documents)
        return worker.model_copy(
            update={
                "configuration": mark,
                "model": self.endpoint.model if asked else None,
                "metrics_url": place.metrics_url,
            }
        )

    def _notes(self, place: Listed, worker: Worker, answers: Answers) -> list[str]:
        notes = []
        if worker.pool_tokens is None:
            remedy = next((u.remedy for u in worker.untold if u.figure == "pool_tokens"), "")
            unknown = worker.engine == catalogue.UNKNOWN
            why = f" ({answers.why})." if unknown or not remedy else f": {remedy}."
            notes.append(f"The {worker.role} worker {worker.url} did not tell its capacity{why}")
        names = _names(catalogue.described("", answers.documents), answers.documents)
        if names and self.endpoint.model not in (UNNAMED, *names):
            notes.append(
                f"The {worker.role} worker {worker.url} does not say that it serves {self.endpoint.model}."
            )
        if place.role is None and place.url != self.root and worker.role is Role.UNIFIED:
            notes.append(
                f"The role of {worker.url} is not told, so it counts as unified: name it in a deployment file."
            )
        return notes


def _listing(documents: Documents) -> Listing:
    with Unseen():
        return routers.listing(documents)


def _names(worker: Worker, documents: Documents) -> frozenset[str]:
    """Everything that a worker says it serves."""
    served = {model.name for model in openai.models(documents.value(openai.MODELS))}
    return frozenset(served | ({worker.model} if worker.model else set()))


def _nowhere(places: Sequence[Listed]) -> tuple[Worker, ...]:
    """Workers that cannot be asked: unknown, and with them the deployment's capacity."""
    return tuple(
        Worker(role=place.role or Role.UNIFIED, url=f"unknown-{n}", engine=catalogue.UNKNOWN)
        for n, place in enumerate(places, start=1)
    )


def _only_instance(worker: Worker, shown: Documents) -> Worker:
    """The one instance behind Dynamo's frontend, whose metrics are then that one's."""
    told = routers.first_instance(shown.page(routers.PAGE))
    return worker.model_copy(
        update={
            "engine": routers.DYNAMO,
            "pool_tokens": told.pool_tokens,
            "page_tokens": told.page_tokens,
            "context_tokens": told.context_tokens,
            "source": "dynamo_frontend_model_total_kv_blocks x dynamo_frontend_model_kv_cache_block_size",
        }
    )

"""Asks servers for their documents: in parallel, a bounded number at once, each within its deadline."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Self

from kvcanary.deployment.routers import DYNAMO_METRICS, Listed
from kvcanary.engines import catalogue, sglang
from kvcanary.engines.documents import Documents, Want
from kvcanary.engines.exposition import Exposition, parse
from kvcanary.probing.client import Client, JsonReply, TextReply
from kvcanary.probing.outcome import Reason
from kvcanary.probing.tracebacks import Unseen

AT_ONCE = 32
"""Documents that are on their way at the same time. Waiting for a turn is no part of a deadline."""
_ROUTER_METRICS = frozenset(name.replace("sglang:", "sglang_") for name in sglang.ENGINE.metrics)
METRICS = catalogue.METRICS | DYNAMO_METRICS | _ROUTER_METRICS
NOTHING = "nothing came back in time"


_WORDS = {
    Reason.DEADLINE: "no answer in time",
    Reason.HTML: "a web page",
    Reason.EMPTY_BODY: "an empty body",
    Reason.NOT_JSON: "something that is no JSON",
    Reason.TOO_LARGE: "more than is read",
    Reason.NOT_HTTP: "no whole HTTP answer",
    Reason.IDLE_RESET: "a closed connection",
    Reason.TLS: "a failure of TLS",
}


def came(reply: JsonReply | TextReply) -> str:
    """What came in place of a document that could be read, in words."""
    if reply.status is not None and reply.status >= HTTPStatus.MULTIPLE_CHOICES:
        return f"HTTP {reply.status}"
    if reply.reason is None:
        return "something else" if reply.status else NOTHING
    return _WORDS.get(reply.reason, reply.reason.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Answers:
    """What one server answered.

    Attributes:
        why: what came in place of documents that could be read: ``HTTP 404``, ``no answer in time``.
        is_there: whether anything came back at all.
    """

    documents: Documents = field(default_factory=Documents)
    why: str = NOTHING
    is_there: bool = False


@dataclass(slots=True)
class _Gathered:
    """Documents as they come in."""

    values: dict[str, object] = field(default_factory=dict, repr=False)
    pages: dict[str, Exposition] = field(default_factory=dict, repr=False)
    asked: set[str] = field(default_factory=set)
    replies: list[JsonReply | TextReply] = field(default_factory=list, repr=False)

    def add(self, want: Want, reply: JsonReply | TextReply) -> None:
        self.asked.add(want.path)
        self.replies.append(reply)
        if isinstance(reply, JsonReply):
            if reply.value is not None:
                self.values[want.path] = reply.value
        elif reply.text is not None:
            with Unseen():
                page = parse(reply.text, only=METRICS)
            if isinstance(page, Exposition):
                self.pages[want.path] = page

    @property
    def documents(self) -> Documents:
        return Documents(dict(self.values), dict(self.pages))

    def wanted(self) -> tuple[Want, ...]:
        """What to ask for next."""
        with Unseen():
            return catalogue.wanted(self.documents, self.asked)

    def answers(self) -> Answers:
        return Answers(self.documents, self._why(), any(r.status for r in self.replies))

    def _why(self) -> str:
        refused = [r for r in self.replies if r.status in (401, 403)]
        if not refused and (self.values or self.pages):
            return "nothing in its answers is of an engine that kvcanary knows"
        told = refused or [r for r in self.replies if r.status] or self.replies
        return came(told[0]) if told else NOTHING


class Asker:
    """Asks servers; an async context manager.

    Args:
        client: for the front door, and with its key for those that may have it.
        deadline_seconds: longest wait for each document.
    """

    def __init__(self, client: Client, deadline_seconds: float) -> None:
        self._endpoint = client.endpoint
        self._deadline_seconds = deadline_seconds
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._stack = AsyncExitStack()
        self._clients: dict[str | None, Client] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def front_door(
        self, root: str, wants: Sequence[Want], known: Mapping[Want, JsonReply]
    ) -> Answers:
        """The documents of the front door; ``known``: what it was asked for already."""
        gathered = _Gathered()
        for want, reply in known.items():
            gathered.add(want, reply)
        await self._ask(gathered, Listed(root, trusted=True), wants)
        return gathered.answers()

    async def worker(
        self, place: Listed, known: Answers | None = None, not_asked: Collection[str] = ()
    ) -> Answers:
        """All documents of a server that tell its figures, whichever engine it is.

        Args:
            known: what it answered before.
            not_asked: paths that it must not be asked for.
        """
        gathered = _Gathered()
        if known:
            gathered.values |= known.documents.values
            gathered.pages |= known.documents.pages
            gathered.asked |= {*known.documents.values, *known.documents.pages}
        gathered.asked |= set(not_asked)
        if catalogue.FIRST.path not in gathered.asked:
            await self._ask(gathered, place, (catalogue.FIRST,))
            if not any(reply.status for reply in gathered.replies) and not place.metrics_url:
                return gathered.answers()
        while wants := gathered.wanted():
            await self._ask(gathered, place, wants)
        return gathered.answers()

    async def use(self, place: Listed, wants: Sequence[Want]) -> Documents:
        """The documents that tell a worker's use now."""
        gathered = _Gathered()
        await self._ask(gathered, place, wants)
        return gathered.documents

    async def _ask(self, gathered: _Gathered, place: Listed, wants: Sequence[Want]) -> None:
        replies = await asyncio.gather(*(self._fetch(place, want) for want in wants))
        for want, reply in zip(wants, replies, strict=True):
            gathered.add(want, reply)

    async def _fetch(self, place: Listed, want: Want) -> JsonReply | TextReply:
        async with self._turns:
            client = self._client_of(place)
            url = f"{place.url}{want.path}"
            if want.metrics:
                if want.path == "/metrics" and place.metrics_url:
                    url = place.metrics_url
                return await client.get_text(
                    url, with_key=place.trusted, deadline_seconds=self._deadline_seconds
                )
            return await client.get_json(
                url, with_key=place.trusted, deadline_seconds=self._deadline_seconds
            )

    def _client_of(self, place: Listed) -> Client:
        """One client for all that share the front door's key, and one for each key of a worker's own."""
        whose = place.url if place.api_key else None
        if whose not in self._clients:
            endpoint = self._endpoint
            if place.api_key:
                endpoint = replace(endpoint, api_key=place.api_key, headers=())
            client = Client(endpoint, concurrency=AT_ONCE if whose is None else 1)
            self._stack.push_async_exit(client)
            self._clients[whose] = client
        return self._clients[whose]


async def together(
    asker: Asker, places: Sequence[Listed], not_asked: Mapping[str, Collection[str]], seconds: float
) -> list[Answers]:
    """The answers of all places, in order, within so many seconds altogether: who is late says nothing."""
    tasks = [
        asyncio.create_task(asker.worker(place, not_asked=not_asked.get(place.url or "", ())))
        for place in places
    ]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        return [t.result() if t.done() and not t.cancelled() else Answers() for t in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

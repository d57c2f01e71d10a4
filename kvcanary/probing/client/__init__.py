"""The HTTP client: one request out, one `Reply` back, whatever the server does.

Rules: a deadline over everything, bounds on everything that is read, no redirects, no cookies
(one tenant's session must not steer another's), no compression (a small bomb would be large), no
proxy that the user did not ask for, the key only where it is due. `Client.send` raises for
nothing that a server does; `asyncio.CancelledError` passes through, and so does a fault of our
own, without what was held in the frames that it passed through: the key, a server's text.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import httpx

from kvcanary.errors import UsageError
from kvcanary.probing.client.body import ReadLimits
from kvcanary.probing.client.document import Document, JsonReply, TextReply, fetch
from kvcanary.probing.client.exchange import Exchange
from kvcanary.probing.client.own_time import own_time
from kvcanary.probing.client.transport import (
    CONNECT_SECONDS,
    EndpointAuth,
    http_client,
    transport_reason,
)
from kvcanary.probing.endpoint import ANYBODY, Endpoint, Identity, Request, normalised_url
from kvcanary.probing.outcome import Ending, Reason, Reply
from kvcanary.probing.tracebacks import Unseen

__all__ = ["Client", "JsonReply", "ReadLimits", "TextReply"]

TRAILING_SECONDS = 1.0
"""How long the rest of a response may take after its ``[DONE]``, to keep the connection."""

_METADATA_CONNECTIONS = 4


class Client:
    """Sends requests to one endpoint; an async context manager.

    Args:
        concurrency: the most requests in flight; a further `send` waits, within its deadline.

    Raises:
        UsageError: the URL's host is none, or the concurrency is below 1.
        ConfigError: the endpoint's `ca_file` or `certificate` cannot be used.
    """

    def __init__(
        self, endpoint: Endpoint, *, concurrency: int = 8, limits: ReadLimits | None = None
    ) -> None:
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; it has to be at least 1.")
        self.endpoint = endpoint
        self._limits = limits or ReadLimits()
        self._slots = asyncio.Semaphore(concurrency)
        self._auth = EndpointAuth(endpoint)
        try:
            httpx.URL(endpoint.completion_url)
        except httpx.InvalidURL:
            raise UsageError(
                "The URL's host is no valid host name. Give http(s)://HOST[:PORT]/v1."
            ) from None
        self._http = http_client(endpoint, concurrency + _METADATA_CONNECTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(
        self,
        request: Request,
        *,
        deadline_seconds: float,
        on_first_token: Callable[[], None] | None = None,
        release: asyncio.Event | None = None,
    ) -> Reply:
        """Send `request` and read the response to its end.

        Args:
            deadline_seconds: over everything: waiting for a slot, connecting, sending, reading. Time in
                which this process was held up does not count.
            on_first_token: called once, when the first event with text was read (never without
                a stream).
            release: when set, the exchange is dropped, and its outcome is "aborted" unless it
                was over by then.

        Raises:
            ValueError: the prompt text's pieces do not add up to its declared size.
        """
        exchange = Exchange(self.endpoint, request, self._limits, on_first_token, TRAILING_SECONDS)
        with Unseen():
            try:
                async with (
                    own_time(deadline_seconds) as deadline,
                    _released_by(release) as held,
                    self._slots,
                ):
                    exchange.seen.has_slot = True
                    exchange.start()
                    connect_seconds = min(CONNECT_SECONDS, 0.9 * deadline_seconds)
                    auth = EndpointAuth(self.endpoint, request.identity)
                    await exchange.run(self._http, auth, connect_seconds)
            except TimeoutError:
                expired = held.expired() and not deadline.expired()
                exchange.end(Ending.RELEASED if expired else Ending.DEADLINE)
            return exchange.reply()

    async def get_json(
        self,
        url: str,
        *,
        deadline_seconds: float = 5.0,
        max_bytes: int = 4_000_000,
        with_key: bool,
        identity: Identity = ANYBODY,
    ) -> JsonReply:
        """Fetch a metadata document, within a deadline and a size.

        Args:
            with_key: send the endpoint's key and extra headers. Only for the endpoint itself and
                for URLs that the user listed or trusts.
            identity: whose key and headers, where they are not the endpoint's own.

        A URL that is none, as a server's list of workers may hold, gives a reason and no error.
        """
        auth = EndpointAuth(self.endpoint, identity) if with_key else None
        got = await self._get(url, "application/json", deadline_seconds, max_bytes, auth)
        if got.reason is not None:
            return JsonReply(got.status, reason=got.reason)
        try:
            return JsonReply(got.status, json.loads(got.body))
        except (ValueError, RecursionError):
            return JsonReply(got.status, reason=Reason.HTML if got.is_html else Reason.NOT_JSON)

    async def get_text(
        self,
        url: str,
        *,
        deadline_seconds: float = 5.0,
        max_bytes: int = 4_000_000,
        with_key: bool,
    ) -> TextReply:
        """Fetch a plain text, such as a server's metrics; as `get_json` otherwise."""
        auth = self._auth if with_key else None
        got = await self._get(url, "text/plain", deadline_seconds, max_bytes, auth)
        if got.reason is None and got.is_html:
            return TextReply(got.status, reason=Reason.HTML)
        text = got.body.decode("utf-8", "replace") if got.reason is None else None
        return TextReply(got.status, text, got.reason)

    async def _get(
        self,
        url: str,
        accept: str,
        deadline_seconds: float,
        max_bytes: int,
        auth: EndpointAuth | None,
    ) -> Document:
        path, _, query = url.partition("?")  # a query is ours here: /v1/loads?include=core
        with Unseen():
            try:
                url = normalised_url(path) + (f"?{query}" if query else "")
                async with asyncio.timeout(deadline_seconds):
                    return await fetch(self._http, url, accept, auth, max_bytes)
            except (UsageError, httpx.InvalidURL):
                return Document(None, reason=Reason.NOT_A_URL)
            except TimeoutError:
                return Document(None, reason=Reason.DEADLINE)
            except httpx.TransportError as error:
                return Document(None, reason=transport_reason(error, sending=False))

    def __repr__(self) -> str:
        return f"Client({self.endpoint!r})"


@asynccontextmanager
async def _released_by(release: asyncio.Event | None) -> AsyncIterator[asyncio.Timeout]:
    """A timeout that expires when `release` is set, and never without one."""
    async with asyncio.timeout(None) as held:
        if release is None:
            yield held
            return

        async def watch(event: asyncio.Event) -> None:
            await event.wait()
            held.reschedule(asyncio.get_running_loop().time())

        watcher = asyncio.create_task(watch(release))
        try:
            yield held
        finally:
            watcher.cancel()

"""From a front door to the facts: what it serves, which workers stand behind it, what they hold."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.engines import openai, sglang
from kvcanary.errors import Unauthorized, Unreachable
from kvcanary.probing.client import Client, JsonReply
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.outcome import Reason

MAX_WORKERS = 256
METADATA_SECONDS = 5.0
"""Longest wait for one metadata document."""
NO_WORKER = (
    "No worker could be discovered: the front door lists none (/workers) and is none itself "
    "(/server_info)."
)
_ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE, "regular": Role.UNIFIED}


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


async def discover(
    client: Client,
    context_tokens: int | None,
    *,
    context_source: str = "--context",
    trust_discovered: bool = False,
    deadline_seconds: float = METADATA_SECONDS,
) -> Facts:
    """Ask the front door, then each worker that it names (without the key unless trusted).

    ``context_source``: who promised ``context_tokens``. ``deadline_seconds``: longest wait for each document.
    Raises Unreachable or Unauthorized where the context limit stays unknown because nobody could be asked.
    """
    root = client.endpoint.base_url.removesuffix("/v1")
    listing = await model_list(client, deadline_seconds)
    listed = [m for m in openai.models(listing.value) if m.name == client.endpoint.model]
    workers, notes = await _Workers(client, root, trust_discovered, deadline_seconds).ask()
    advertised = listed[0].context_tokens if listed else None
    if context_tokens is not None:
        context, source = context_tokens, context_source
    elif advertised is not None:
        context, source = advertised, "/v1/models max_model_len"
    else:
        known = [w.context_tokens for w in workers if w.context_tokens]
        context, source = max(known, default=0), "the workers' context length"
        if not context:
            raise_unless_asked(client.endpoint, listing)
    return Facts(
        context_tokens=context or None,
        context_source=source if context else "unknown",
        workers=workers,
        notes=notes,
    )


async def used_tokens(client: Client, worker: Worker, *, with_key: bool = False) -> int | None:
    """Tokens in use on one worker now."""
    reply = await client.get_json(f"{worker.url}/v1/loads?include=core", with_key=with_key)
    return sglang.used_tokens(reply.value)


@dataclass(frozen=True, slots=True)
class _Workers:
    """The workers behind one front door."""

    client: Client
    root: str
    trusted: bool
    deadline_seconds: float

    async def ask(self) -> tuple[tuple[Worker, ...], tuple[str, ...]]:
        """Every worker, known or not, and notes on those that are not."""
        listing = await self._get(f"{self.root}/workers", with_key=True)
        named, notes = _listed(listing.value)
        if not named:
            info = await self._get(f"{self.root}/server_info", with_key=True)
            if info.value is None:
                info = await self._get(f"{self.root}/get_server_info", with_key=True)
            alone = sglang.worker(self.root, info.value)
            return ((alone,), ()) if alone else ((), (NO_WORKER,))
        asked = [(role, url) for role, url in named if url]
        infos = await asyncio.gather(
            *(self._get(f"{url}/server_info", with_key=self.trusted) for _, url in asked)
        )
        workers = []
        for (role, url), info in zip(asked, infos, strict=True):
            worker = sglang.worker(url, info.value, role)
            if worker is None:
                why = f"HTTP {info.status}" if info.status else (info.reason or "no answer")
                notes.append(f"The {role} worker {url} did not tell its capacity ({why}).")
                worker = Worker(role=role, url=url, engine="unknown")
            workers.append(worker)
        nowhere = [Worker(role=role, url="-", engine="unknown") for role, url in named if not url]
        return (*workers, *nowhere), tuple(notes)

    async def _get(self, url: str, *, with_key: bool) -> JsonReply:
        return await self.client.get_json(
            url, with_key=with_key, deadline_seconds=self.deadline_seconds
        )


def _listed(document: object) -> tuple[list[tuple[Role, str | None]], list[str]]:
    """``/workers`` of sglang-router: role and URL of each, and notes on those that cannot be asked.

    A worker that cannot be asked stays in the list without a URL: its capacity is unknown, and with it
    the deployment's.
    """
    entries = document.get("workers") if isinstance(document, Mapping) else None
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return [], []
    named: list[tuple[Role, str | None]] = []
    strange = 0
    for entry in entries[:MAX_WORKERS]:
        fields = entry if isinstance(entry, Mapping) else {}
        role, url = _ROLES.get(str(fields.get("worker_type"))), fields.get("url")
        if role and isinstance(url, str) and _plain(url):
            named.append((role, url.rstrip("/")))
        else:
            strange += 1
            named.append((role or Role.UNIFIED, None))
    notes = []
    if strange:
        notes.append(f"{strange} listed workers have no known role or no plain http(s) URL.")
    if len(entries) > MAX_WORKERS:
        notes.append(f"Only the first {MAX_WORKERS} of {len(entries):,} listed workers were asked.")
        named.append((Role.UNIFIED, None))
    return named, notes


def _plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    plain = parts.scheme in ("http", "https") and bool(parts.hostname) and len(url) <= 512
    plain = plain and url.isascii() and url.isprintable() and " " not in url
    return plain and not (parts.username or parts.password or parts.query or parts.fragment)

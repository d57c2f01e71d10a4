"""From a front door to the facts: what it serves, which workers stand behind it, what they hold."""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.engines import openai, sglang
from kvcanary.probing.client import Client

MAX_WORKERS = 256
NO_WORKER = (
    "No worker could be discovered: the front door lists none (/workers) and is none itself "
    "(/server_info)."
)
_ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE, "regular": Role.UNIFIED}


async def served_models(client: Client) -> tuple[openai.Model, ...]:
    """What ``/v1/models`` lists; empty where there is no such list."""
    reply = await client.get_json(f"{client.endpoint.base_url}/models", with_key=True)
    return openai.models(reply.value)


async def discover(
    client: Client, context_tokens: int | None, *, trust_discovered: bool = False
) -> Facts:
    """Ask the front door, then each worker that it names (without the key unless trusted)."""
    root = client.endpoint.base_url.removesuffix("/v1")
    listed = [m for m in await served_models(client) if m.name == client.endpoint.model]
    workers, notes = await _workers(client, root, trust_discovered)
    advertised = listed[0].context_tokens if listed else None
    if context_tokens is not None:
        context, source = context_tokens, "--context"
    elif advertised is not None:
        context, source = advertised, "/v1/models max_model_len"
    else:
        known = [w.context_tokens for w in workers if w.context_tokens]
        context, source = max(known, default=0), "the workers' context length"
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


async def _workers(
    client: Client, root: str, trusted: bool
) -> tuple[tuple[Worker, ...], tuple[str, ...]]:
    listing = await client.get_json(f"{root}/workers", with_key=True)
    named = _listed(listing.value)
    if not named:
        info = await client.get_json(f"{root}/server_info", with_key=True)
        if info.value is None:
            info = await client.get_json(f"{root}/get_server_info", with_key=True)
        worker = sglang.worker(root, info.value)
        if worker:
            return (worker,), ()
        return (), (NO_WORKER,)
    infos = await asyncio.gather(
        *(client.get_json(f"{url}/server_info", with_key=trusted) for _, url in named)
    )
    workers, notes = [], []
    for (role, url), info in zip(named, infos, strict=True):
        worker = sglang.worker(url, info.value, role)
        if worker is None:
            why = f"HTTP {info.status}" if info.status else (info.reason or "no answer")
            notes.append(f"The {role} worker {url} did not tell its capacity ({why}).")
            worker = Worker(role=role, url=url, engine="unknown")
        workers.append(worker)
    return tuple(workers), tuple(notes)


def _listed(document: object) -> list[tuple[Role, str]]:
    """``/workers`` of sglang-router: role and URL of each, only plain http(s) URLs."""
    entries = document.get("workers") if isinstance(document, Mapping) else None
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return []
    named = []
    for entry in entries[:MAX_WORKERS]:
        if not isinstance(entry, Mapping):
            continue
        role, url = _ROLES.get(str(entry.get("worker_type"))), entry.get("url")
        if role and isinstance(url, str) and _plain(url):
            named.append((role, url.rstrip("/")))
    return named


def _plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    plain = parts.scheme in ("http", "https") and bool(parts.hostname) and len(url) <= 512
    return plain and not (parts.username or parts.password or parts.query or parts.fragment)

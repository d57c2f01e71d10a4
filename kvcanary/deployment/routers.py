"""What a front door says of the workers behind it: sglang-router, vllm-router and Dynamo's frontend.

Measured on sglang-router 0.3.2 and vllm-router 0.1.17; Dynamo 1.6 by its documentation. Pure: lists in, places
out. What cannot be asked stays in the list without a URL: left out, the others would pass for the whole.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvcanary.deployment.facts import Role
from kvcanary.engines.documents import Documents, Want, fields, least
from kvcanary.engines.exposition import Exposition, Sample
from kvcanary.probing.endpoint import SecretKey

MAX_WORKERS = 256
WORKERS = Want("/workers")
LIST = Want("/list_workers")
MANAGER = Want("/get_server_info")
HEALTH = Want("/health")
ENGINE_PAGE = Want("/engine_metrics", metrics=True)
PAGE = Want("/metrics", metrics=True)

SGLANG_ROUTER = "sglang-router"
VLLM_ROUTER = "vllm-router"
DYNAMO = "dynamo"

_RANKED = re.compile(r"(https?://[A-Za-z0-9.\-]+:[0-9]{1,5})@[0-9]{1,4}")
"""sglang-router with ``--dp-aware`` lists each DP rank of a worker: ``http://host:port@rank``."""
_ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE, "regular": Role.UNIFIED}


@dataclass(frozen=True, slots=True)
class Listed:
    """A worker that a person, a router or Prometheus named.

    Attributes:
        url: of the engine; None when what was named cannot be asked.
        role: None: its own documents say it, or it is unified.
        metrics_url: where its metrics are, when not at ``/metrics`` of `url`.
        trusted: it may have a key: `api_key`, or else the front door's.
    """

    url: str | None
    role: Role | None = None
    metrics_url: str | None = None
    trusted: bool = False
    api_key: SecretKey | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The workers that a front door names. ``router``: what it is; None where it lists nobody."""

    router: str | None = None
    workers: tuple[Listed, ...] = ()
    notes: tuple[str, ...] = ()


def listing(documents: Documents) -> Listing:
    """The workers behind a front door, by its documents `WORKERS`, `LIST`, `MANAGER` and `HEALTH`."""
    entries = _list(documents.fields(WORKERS).get("workers"))
    if entries:
        manager = documents.fields(MANAGER).get("router_manager") is True
        sglang = manager or any("metadata" in fields(entry) for entry in entries)
        return _listing(SGLANG_ROUTER if sglang else VLLM_ROUTER, [_entry(e) for e in entries])
    urls = _list(documents.fields(LIST).get("urls"))
    if urls:
        return _listing(VLLM_ROUTER, [Listed(_plain(url)) for url in urls])
    instances = documents.fields(HEALTH).get("instances")
    if isinstance(instances, list):
        return _dynamo(instances)
    return Listing()


def _listing(router: str, named: list[Listed]) -> Listing:
    notes = []
    if strange := sum(worker.url is None for worker in named[:MAX_WORKERS]):
        notes.append(
            f"{strange} of the {len(named):,} workers that the front door lists cannot be asked: no known role, "
            "or no plain http(s) URL. Name them in a deployment file."
        )
    kept = _once(named[:MAX_WORKERS])
    notes += [
        f"The front door lists {url} in several roles: name its role in a deployment file."
        for url in sorted(_in_two_roles(named[:MAX_WORKERS]))
    ]
    if len(named) > MAX_WORKERS:
        notes.append(f"Only the first {MAX_WORKERS} of {len(named):,} listed workers were asked.")
        kept.append(Listed(None))
    return Listing(router, tuple(kept), tuple(notes))


def _once(named: list[Listed]) -> list[Listed]:
    """Each address once: a worker may be listed for each of its ranks. In several roles it has none."""
    kept: dict[str, Listed] = {}
    nowhere = [worker for worker in named if worker.url is None]
    unsure = _in_two_roles(named)
    for worker in named:
        if worker.url is not None:
            kept.setdefault(worker.url, Listed(worker.url) if worker.url in unsure else worker)
    return [*kept.values(), *nowhere]


def _in_two_roles(named: list[Listed]) -> frozenset[str]:
    roles: dict[str, set[Role | None]] = {}
    for worker in named:
        if worker.url is not None:
            roles.setdefault(worker.url, set()).add(worker.role)
    return frozenset(url for url, those in roles.items() if len(those) > 1)


def _entry(entry: object) -> Listed:
    told = fields(entry)
    kind, url = told.get("worker_type"), _plain(told.get("url"))
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    return Listed(url if role else None, role)


def _dynamo(instances: list[object]) -> Listing:
    """Dynamo names instances and no address of theirs: each component's ``generate`` is one worker."""
    generating = [fields(i) for i in instances if fields(i).get("endpoint") == "generate"]
    components = [instance.get("component") for instance in generating]
    split = "prefill" in components
    roles = {"prefill": Role.PREFILL, "decode": Role.DECODE}
    other = Role.DECODE if split else Role.UNIFIED
    workers = [
        Listed(None, roles.get(c, other) if isinstance(c, str) else other)
        for c in components[:MAX_WORKERS]
    ]
    note = (
        f"Dynamo's frontend lists {len(components):,} instances without an address, and its own figures "
        "describe only the first that registered. Start the workers with DYN_SYSTEM_PORT, and name each "
        "one's URL in the deployment file (its /metrics there passes the engine's on)."
    )
    return Listing(DYNAMO, tuple(workers), (note,))


@dataclass(frozen=True, slots=True)
class FirstInstance:
    """What Dynamo's frontend says of the instance that registered first; any of it may be unknown."""

    pool_tokens: int | None
    page_tokens: int | None
    context_tokens: int | None


DYNAMO_METRICS = frozenset(
    {
        "dynamo_frontend_model_total_kv_blocks",
        "dynamo_frontend_model_kv_cache_block_size",
        "dynamo_frontend_model_context_length",
    }
)


def first_instance(page: Exposition) -> FirstInstance:
    """The figures of the frontend's own metrics: the whole deployment's only where it has one instance."""
    blocks = least(page, "dynamo_frontend_model_total_kv_blocks")
    size = least(page, "dynamo_frontend_model_kv_cache_block_size")
    return FirstInstance(
        pool_tokens=blocks * size if blocks and size else None,
        page_tokens=size,
        context_tokens=least(page, "dynamo_frontend_model_context_length"),
    )


def page_of(router_page: Exposition, url: str) -> Exposition:
    """One worker's metrics out of sglang-router's ``/engine_metrics``, under their own names.

    The router writes ``sglang_`` for ``sglang:`` and adds the worker's address.
    """
    return Exposition(
        tuple(
            Sample(f"sglang:{sample.name.removeprefix('sglang_')}", sample.labels, sample.value)
            for sample in router_page.samples
            if sample.name.startswith("sglang_") and sample.label("worker_addr") == url
        )
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _plain(url: object) -> str | None:
    """A plain http(s) URL without credentials, query or fragment."""
    if not isinstance(url, str) or len(url) > 512:
        return None
    if ranked := _RANKED.fullmatch(url):
        url = ranked[1]
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    plain = parts.scheme in ("http", "https") and bool(host)
    plain = plain and url.isascii() and url.isprintable() and " " not in url
    secret = parts.username or parts.password or parts.query or parts.fragment
    return url.rstrip("/") if plain and not secret else None

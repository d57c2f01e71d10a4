"""SGLang: ``/server_info``, ``/v1/loads``, ``/metrics``, and what they were called before
(0.5.2: ``/get_server_info``; up to 0.5.15: ``/get_load``).

Measured on 0.5.23; older names from 0.5.2 on. ``/server_info`` returns keys in clear, so nothing of it is
kept but what is read here. A document that is missing costs figures, never an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kvcanary.deployment.facts import Parallelism, Rank, Role, Switch, SwitchName, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import (
    MAX_ENTRIES,
    Documents,
    Want,
    amount,
    by_rank,
    entries,
    fields,
    fraction,
    in_label,
    least,
    name,
    number,
    positive,
    started_at,
    truth,
    version,
    whole,
)
from kvcanary.engines.engine import Engine
from kvcanary.engines.exposition import Exposition
from kvcanary.engines.figures import Figures

NAME = "sglang"
INFO = Want("/server_info")
OLD_INFO = Want("/get_server_info")
LOADS = Want("/v1/loads?include=core,memory,disagg,queues")
OLD_LOADS = Want("/get_load")
PAGE = Want("/metrics", metrics=True)

SHORTFALL = 6
"""``max_req_input_len = min(context - 1, pool - 1) - 5``: the pool is that plus six where the pool is the
smaller one. A prompt of that length is refused already."""
GIB = 1 << 30

_POOL = "sglang:max_total_num_tokens"
_OLD_CONFIG = "sglang:cache_config_info"
_METRICS = frozenset(
    {
        _POOL,
        _OLD_CONFIG,
        "sglang:max_total_num_tokens_swa",
        "sglang:context_len",
        "sglang:page_size",
        "sglang:kv_used_tokens",
        "sglang:num_used_tokens",
        "sglang:kv_cache_memory_usage_gb",
        "sglang:hicache_host_total_tokens",
    }
)

_NOT_ARGUMENTS = frozenset(
    {
        *("internal_states", "startup_time", "launch_command", "status", "version", "random_seed"),
        *("max_total_num_tokens", "max_req_input_len", "host", "port", "nccl_port", "node_rank"),
        *("dist_init_addr", "kv_events", "hicache_object_layout", "base_gpu_id", "grpc_port"),
    }
)
"""Fields of ``/server_info`` that differ from start to start, or from copy to copy, without a decision."""


def _speaks(documents: Documents) -> bool:
    """Whether the documents are SGLang's."""
    info = _info(documents)
    told = number(info.get("max_total_num_tokens")) or number(info.get("max_req_input_len"))
    return bool(told) or bool(documents.page(PAGE).named(_POOL))


def _older(documents: Documents) -> tuple[Want, ...]:
    """Older names of what was asked for in vain."""
    old = [] if documents.fields(INFO) else [OLD_INFO]
    return (*old, *([] if documents.fields(LOADS) else [OLD_LOADS]))


def _arguments(documents: Documents) -> Mapping[str, object] | None:
    """The server's resolved arguments; None where it does not tell them."""
    info = _info(documents)
    return {k: v for k, v in info.items() if k not in _NOT_ARGUMENTS} if info else None


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents. ``role``: what the router says; its own word otherwise."""
    info, page = _info(documents), documents.page(PAGE)
    figures = Figures()
    context = figures.first(
        "context_tokens",
        (positive(info.get("context_length")), "/server_info context_length"),
        (least(page, "sglang:context_len"), "sglang:context_len"),
        (openai.context_of(documents), "/v1/models max_model_len"),
        remedy="start it with --enable-metrics, or give --context-length",
    )
    parallelism = Parallelism(
        tensor=positive(info.get("tp_size")),
        pipeline=positive(info.get("pp_size")),
        data=_data_parallel(info),
    )
    most = positive(info.get("max_req_input_len"))
    ranks, by = _ranks(documents, parallelism.data, most, context)
    pool = _pool(figures, ranks, by)
    page_tokens = figures.first(
        "page_tokens",
        (positive(info.get("page_size")), "/server_info page_size"),
        (least(page, "sglang:page_size"), "sglang:page_size"),
        (_old(page, "page_size"), f"{_OLD_CONFIG} page_size"),
    )
    used = figures.first(
        "used_tokens",
        (_used(ranks), "/v1/loads num_used_tokens, or sglang:kv_used_tokens"),
        remedy="let /v1/loads be read (0.5.10 and later), or start it with --enable-metrics",
    )
    return Worker(
        role=role or _role(info, page),
        url=url,
        engine=NAME,
        version=version(info.get("version")) or version(documents.fields(LOADS).get("version")),
        model=name(info.get("served_model_name")),
        ranks=ranks,
        pool_tokens=pool,
        host_pool_tokens=_host_pool(info, page, pool),
        limit_tokens=_limit(figures, most, pool, context),
        context_tokens=context,
        page_tokens=page_tokens,
        used_tokens=used,
        bytes_per_token=_bytes_per_token(figures, documents, ranks, page_tokens),
        memory_fraction=figures.first(
            "memory_fraction",
            (fraction(info.get("mem_fraction_static")), "/server_info mem_fraction_static"),
        ),
        parallelism=parallelism,
        switches=_switches(info),
        started_at=started_at(page),
        told=figures.told,
        untold=figures.untold,
        source="/server_info" if info else "/metrics",
    )


def _info(documents: Documents) -> Mapping[str, object]:
    return documents.fields(INFO) or documents.fields(OLD_INFO)


def _data_parallel(info: Mapping[str, object]) -> int | None:
    size = positive(info.get("dp_size"))
    return size if size is not None and size <= MAX_ENTRIES else None


def _role(info: Mapping[str, object], page: Exposition) -> Role:
    shown = [sample.label("engine_type") for sample in page.named(_POOL)]
    said = [info.get("disaggregation_mode"), *shown]
    roles = [role for role in (Role.PREFILL, Role.DECODE) if role.value in said]
    return roles[0] if len(roles) == 1 else Role.UNIFIED


@dataclass(slots=True)
class _Rank:
    """What one DP rank was told to be: pools with who tells them, and the use that was told first."""

    pools: list[tuple[int, str]] = field(default_factory=list)
    sliding: list[int] = field(default_factory=list)
    used: int | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """What one document says of a rank."""

    rank: int
    by: str
    pool: int | None = None
    sliding: int | None = None
    used: int | None = None


def _ranks(
    documents: Documents, size: int | None, most: int | None, context: int | None
) -> tuple[tuple[Rank, ...], str]:
    """Each DP rank: the smallest pool that any document gives it, and who tells the smallest of all.

    One that none tells is unknown: ``max_total_num_tokens`` and ``max_req_input_len`` of ``/server_info``
    are rank 0's only.
    """
    found: dict[int, _Rank] = {0: _Rank()}
    for said in _said(documents, size, most, context):
        one = found.setdefault(said.rank, _Rank())
        one.pools += [(said.pool, said.by)] if said.pool else []
        one.sliding += [said.sliding] if said.sliding else []
        one.used = said.used if one.used is None else one.used
    count = max(size or 1, max(found) + 1)
    smallest = {
        rank: min(one.pools, key=lambda pool: pool[0], default=None) for rank, one in found.items()
    }
    told = [pool for pool in smallest.values() if pool is not None]
    ranks = []
    for rank in range(count):
        one, least_pool = found.get(rank, _Rank()), smallest.get(rank)
        ranks.append(
            Rank(
                rank=rank,
                pool_tokens=least_pool[0] if least_pool else None,
                sliding_pool_tokens=min(one.sliding, default=None),
                used_tokens=one.used,
            )
        )
    return tuple(ranks), min(told, key=lambda pool: pool[0])[1] if told else ""


def _said(
    documents: Documents, size: int | None, most: int | None, context: int | None
) -> Iterator[_Said]:
    """Whatever the documents say of ranks; exact figures of use before those of the metrics."""
    info, page = _info(documents), documents.page(PAGE)
    total = positive(info.get("max_total_num_tokens"))
    yield _Said(0, "/server_info max_total_num_tokens", total)
    if most is not None and context is not None and most + SHORTFALL < context:
        yield _Said(0, "/server_info max_req_input_len, plus six", most + SHORTFALL)
    states = entries(info.get("internal_states"))
    for rank, state in enumerate(states if len(states) <= (size or 1) else ()):
        memory = fields(fields(state).get("memory_usage"))
        capacity, sliding = memory.get("token_capacity"), memory.get("token_capacity_swa")
        by = "/server_info internal_states token_capacity"
        yield _Said(rank, by, positive(capacity), positive(sliding))
    for entry in map(fields, entries(documents.fields(LOADS).get("loads"))):
        if (rank_told := _rank(entry.get("dp_rank", 0))) is not None:
            pool, used = entry.get("max_total_num_tokens"), entry.get("num_used_tokens")
            by = "/v1/loads max_total_num_tokens"
            yield _Said(rank_told, by, positive(pool), used=number(used))
    for entry in map(fields, entries(documents.value(OLD_LOADS))):
        # what waits is counted in; without it, the figure is the use
        idle = entry.get("num_waiting_reqs") == 0
        if (rank_told := _rank(entry.get("dp_rank"))) is not None and idle:
            yield _Said(rank_told, "/get_load", used=number(entry.get("num_tokens")))
    for rank, sample in by_rank(page, _POOL, "dp_rank"):
        yield _Said(rank, _POOL, whole(sample))
    for rank, sample in by_rank(page, f"{_POOL}_swa", "dp_rank"):
        yield _Said(rank, _POOL, sliding=whole(sample))
    yield _Said(0, f"{_OLD_CONFIG} num_pages x page_size", _old(page, "num_pages", "page_size"))
    for metric in ("sglang:kv_used_tokens", "sglang:num_used_tokens"):
        for rank, sample in by_rank(page, metric, "dp_rank"):
            yield _Said(rank, metric, used=whole(sample))


def _rank(value: object) -> int | None:
    rank = number(value)
    return rank if rank is not None and rank < MAX_ENTRIES else None


def _pool(figures: Figures, ranks: tuple[Rank, ...], by: str) -> int | None:
    unknown = [rank.rank for rank in ranks if rank.pool_tokens is None]
    known = [rank.pool_tokens for rank in ranks if rank.pool_tokens is not None]
    smallest = min(known) if known and not unknown else None
    missing = f"the pools of {len(unknown)} of {len(ranks)} DP ranks are not told: " * bool(known)
    return figures.first(
        "pool_tokens",
        (smallest, by if len(ranks) == 1 else f"{by}, the smallest of {len(ranks)} DP ranks"),
        remedy=f"{missing}let /server_info and /v1/loads be read (they need the worker's key), or "
        "start it with --enable-metrics",
    )


def _limit(figures: Figures, most: int | None, pool: int | None, context: int | None) -> int | None:
    """The longest prompt that the smallest rank accepts."""
    by_rule = None
    if pool is not None and context is not None:
        by_rule = max(0, min(pool, context) - SHORTFALL - 1)
    told = most - 1 if most else None
    if told is not None:
        told = min(told, told if by_rule is None else by_rule)
    return figures.first(
        "limit_tokens",
        (told, "/server_info max_req_input_len, less one"),
        (by_rule, "the smaller of pool and context, less seven"),
        remedy="let /server_info be read, or start it with --enable-metrics",
    )


def _used(ranks: tuple[Rank, ...]) -> int | None:
    known = [rank.used_tokens for rank in ranks if rank.used_tokens is not None]
    return sum(known) if len(known) == len(ranks) else None


def _host_pool(info: Mapping[str, object], page: Exposition, pool: int | None) -> int | None:
    """HiCache's tier of host memory: ``hicache_ratio`` times the pool, unless a size is given."""
    if (told := least(page, "sglang:hicache_host_total_tokens")) is not None:
        return told
    ratio = amount(info.get("hicache_ratio"))
    sized = info.get("hicache_size") != 0
    if truth(info.get("enable_hierarchical_cache")) and ratio and pool and not sized:
        return int(pool * ratio) if pool * ratio < 1 << 53 else None
    return None


def _bytes_per_token(
    figures: Figures, documents: Documents, ranks: tuple[Rank, ...], page_tokens: int | None
) -> float | None:
    """Of one GPU; None with a pool of its own for sliding windows, whose memory is not told apart.

    The buffers have room for one page more than the pool (0.5.23: 358,912 bytes for 701 of 512).
    """
    first = ranks[0].pool_tokens
    if first is None or any(rank.sliding_pool_tokens for rank in ranks):
        return None
    states = entries(_info(documents).get("internal_states"))
    memory = fields(fields(states[0] if states else None).get("memory_usage"))
    gauges = documents.page(PAGE).named("sglang:kv_cache_memory_usage_gb")
    gib = figures.first(
        "bytes_per_token",
        (
            amount(gauges[0].value) if gauges else None,
            "sglang:kv_cache_memory_usage_gb by the pool",
        ),
        (amount(memory.get("kvcache")), "/server_info memory_usage.kvcache by the pool"),
    )
    return gib * GIB / (first + (page_tokens or 1)) if gib else None


def _old(page: Exposition, *labels: str) -> int | None:
    """A product of labels of ``cache_config_info`` (up to 0.5.10)."""
    product = 1
    for sample in page.named(_OLD_CONFIG)[:1]:
        for label in labels:
            product *= in_label(sample, label) or 0
        return product or None
    return None


def _switches(info: Mapping[str, object]) -> tuple[Switch, ...]:
    truncates = truth(info.get("allow_auto_truncate"))
    uncached = truth(info.get("disable_radix_cache"))
    return (
        Switch(
            name=SwitchName.KV_CHECKSUM,
            on=truth(info.get("disaggregation_enable_kv_checksum")),
            flag="--disaggregation-enable-kv-checksum (0.5.20 and later)",
        ),
        Switch(name=SwitchName.DEFERRED_RELEASE, on=None, flag=""),
        Switch(
            name=SwitchName.CACHE_SALT,
            on=True if uncached else None,
            flag="send cache_salt or extra_key with every request by a route that keeps it, or start "
            "with --disable-radix-cache",
        ),
        Switch(
            name=SwitchName.NO_AUTO_TRUNCATE,
            on=None if truncates is None else not truncates,
            flag="start without --allow-auto-truncate",
        ),
        # 0.5.23 warns, no earlier version does.
        Switch(name=SwitchName.POOL_CHECK, on=False, flag=""),
    )


ENGINE = Engine(
    name=NAME,
    wants=(INFO, LOADS, PAGE),
    speaks=_speaks,
    worker=_worker,
    owner="sglang",
    use=(LOADS, PAGE),
    metrics=_METRICS,
    older=_older,
    arguments=_arguments,
)

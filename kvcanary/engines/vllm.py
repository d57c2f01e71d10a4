"""vLLM: ``/metrics``, ``/v1/models``, ``/version``, and ``/server_info`` where the developers' mode is on.

Measured on 0.32.0. A pool is what requests can have: less the null block, which both of vLLM's own figures
count in. ``num_gpu_blocks`` is summed over DP engines and repeated on each row.
"""

from collections.abc import Mapping

from kvcanary.deployment.facts import Parallelism, Rank, Role, Switch, SwitchName, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import (
    MAX_ENTRIES,
    Documents,
    Want,
    amount,
    by_rank,
    fields,
    fraction,
    in_label,
    name,
    positive,
    started_at,
    truth,
    version,
)
from kvcanary.engines.engine import Engine
from kvcanary.engines.exposition import Exposition, Sample
from kvcanary.engines.figures import Figures

NAME = "vllm"
PAGE = Want("/metrics", metrics=True)
VERSION = Want("/version")
DEVELOPER = Want("/server_info?config_format=json")
"""Only with ``VLLM_SERVER_DEV_MODE=1``. It holds the environment: nothing is kept but what is read here."""

CONFIG = "vllm:cache_config_info"
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_METRICS = frozenset({CONFIG, *_USAGE})
_NOT_ARGUMENTS = frozenset(
    {
        *("engine", "num_gpu_blocks", "num_cpu_blocks", "kv_cache_size_tokens"),
        *("kv_cache_max_concurrency", "_block_size_resolved"),
    }
)
SINGLE_GROUP_BEFORE = (0, 9)
"""Before it every model has one group of layers in the cache."""


def _speaks(documents: Documents) -> bool:
    """Whether the documents are vLLM's."""
    page = documents.page(PAGE)
    return any(page.named(metric) for metric in _METRICS)


def _arguments(documents: Documents) -> Mapping[str, object] | None:
    """The cache's configuration and the context; None where it is not told."""
    for sample in documents.page(PAGE).named(CONFIG):
        told = {k: v for k, v in sample.labels if k not in _NOT_ARGUMENTS}
        return {**told, "max_model_len": openai.context_of(documents)}
    return None


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents. No metric has the role: it is the router's or the file's word."""
    page, config = documents.page(PAGE), fields(documents.fields(DEVELOPER).get("vllm_config"))
    rows = dict(by_rank(page, CONFIG, "engine"))
    first = next(iter(rows.values()), None)
    figures = Figures()
    parallel = fields(config.get("parallel_config"))
    parallelism = Parallelism(
        tensor=positive(parallel.get("tensor_parallel_size")),
        pipeline=positive(parallel.get("pipeline_parallel_size")),
        data=_data_parallel(parallel, rows),
    )
    running = version(documents.fields(VERSION).get("version"))
    ranks = _ranks(
        page, rows, parallelism.data or 1, _single_group(running, config, rows), parallel
    )
    pools = [rank.pool_tokens for rank in ranks]
    known = [pool for pool in pools if pool is not None]
    context = figures.first(
        "context_tokens",
        (openai.context_of(documents), "/v1/models max_model_len"),
        (_context(config), "/server_info max_model_len"),
        remedy="let /v1/models be read (it needs the worker's key)",
    )
    pool = figures.first(
        "pool_tokens",
        (
            min(known) if known and len(known) == len(pools) else None,
            f"{CONFIG}, the smallest engine, less the null block",
        ),
        remedy="vLLM 0.25 and later tell kv_cache_size_tokens on /metrics; before, the pool of a model "
        "with several kinds of layers is not told",
    )
    used = [rank.used_tokens for rank in ranks if rank.used_tokens is not None]
    return Worker(
        role=role or _role(config),
        url=url,
        engine=NAME,
        version=running,
        model=name(openai.first_name(documents)),
        ranks=ranks,
        pool_tokens=pool,
        limit_tokens=figures.first(
            "limit_tokens",
            # a prompt of max_model_len leaves no room for the one token that every answer has
            (context - 1 if context else None, "max_model_len, less one token of output"),
        ),
        context_tokens=context,
        page_tokens=figures.first(
            "page_tokens",
            (in_label(first, "block_size") or None if first else None, f"{CONFIG} block_size"),
        ),
        used_tokens=figures.first(
            "used_tokens",
            (sum(used) if used and len(used) == len(ranks) else None, f"{_USAGE[0]} of the pool"),
        ),
        bytes_per_token=_bytes_per_token(figures, first),
        memory_fraction=figures.first(
            "memory_fraction",
            (_label_fraction(first, "gpu_memory_utilization"), f"{CONFIG} gpu_memory_utilization"),
        ),
        parallelism=parallelism,
        switches=_switches(first),
        started_at=started_at(page),
        told=figures.told,
        untold=figures.untold,
        source="/metrics",
    )


def _context(config: Mapping[str, object]) -> int | None:
    return positive(fields(config.get("model_config")).get("max_model_len"))


def _role(config: Mapping[str, object]) -> Role:
    said = fields(config.get("kv_transfer_config")).get("kv_role")
    roles = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}
    return roles.get(said, Role.UNIFIED) if isinstance(said, str) else Role.UNIFIED


def _data_parallel(parallel: Mapping[str, object], rows: Mapping[int, Sample]) -> int | None:
    """How many engines stand behind this address. Behind a load balancer of its own each shows itself only."""
    told = positive(parallel.get("data_parallel_size"))
    apart = truth(parallel.get("data_parallel_external_lb"))
    if told is not None and told <= MAX_ENTRIES and not apart:
        return max(told, len(rows))
    return len(rows) or None


def _single_group(
    running: str | None, config: Mapping[str, object], rows: Mapping[int, Sample]
) -> bool:
    """Whether all layers surely share one kind of block, without which blocks say nothing of tokens."""
    for sample in rows.values():
        for label in ("sliding_window", "mamba_block_size"):
            if sample.label(label) not in (None, "None", "0"):
                return False
    scheduler = fields(config.get("scheduler_config"))
    if truth(scheduler.get("disable_hybrid_kv_cache_manager")):
        return True
    parts = tuple(int(p) for p in (running or "").split(".")[:2] if p.isdigit())
    return len(parts) == len(SINGLE_GROUP_BEFORE) and parts < SINGLE_GROUP_BEFORE


def _ranks(
    page: Exposition,
    rows: Mapping[int, Sample],
    engines: int,
    single_group: bool,
    parallel: Mapping[str, object],
) -> tuple[Rank, ...]:
    """Each DP engine: rows that are told, then unknown ones up to their number."""
    numbers = [*rows, *(n for n in range(engines) if n not in rows)][: max(engines, len(rows))]
    ranks = []
    for rank in sorted(numbers):
        pool = _pool(rows.get(rank), len(rows), single_group, parallel)
        usages = (s.value for m in _USAGE for r, s in by_rank(page, m, "engine") if r == rank)
        usage = next(usages, None)
        known = pool is not None and usage is not None and 0 <= usage <= 1
        used = round((usage or 0) * (pool or 0)) if known else None
        ranks.append(Rank(rank=rank, pool_tokens=pool, used_tokens=used))
    return tuple(ranks)


def _pool(
    row: Sample | None, rows: int, single_group: bool, parallel: Mapping[str, object]
) -> int | None:
    """Tokens that requests of one engine can have: all but the null block."""
    block = in_label(row, "block_size") if row else None
    if row is None or not block:
        return None
    ways = [
        positive(parallel.get(f"{kind}_context_parallel_size")) for kind in ("decode", "prefill")
    ]
    block *= (ways[0] or 1) * (ways[1] or 1)
    tokens = in_label(row, "kv_cache_size_tokens")
    if tokens is None and single_group:
        blocks = in_label(row, "num_gpu_blocks")
        tokens = blocks // rows * block if blocks else None
    return tokens - block if tokens is not None and tokens > block else None


def _label_fraction(row: Sample | None, label: str) -> float | None:
    try:
        return fraction(float((row.label(label) if row else None) or ""))
    except ValueError:
        return None


def _bytes_per_token(figures: Figures, row: Sample | None) -> float | None:
    """Where the memory was given (``--kv-cache-memory-bytes``) and the number of blocks was not."""
    if row is None or row.label("num_gpu_blocks_override") != "None":
        return None
    given, tokens = in_label(row, "kv_cache_memory_bytes"), in_label(row, "kv_cache_size_tokens")
    return figures.first(
        "bytes_per_token",
        (
            amount(given / tokens) if given and tokens else None,
            f"{CONFIG} kv_cache_memory_bytes by kv_cache_size_tokens",
        ),
    )


def _switches(row: Sample | None) -> tuple[Switch, ...]:
    uncached = row is not None and row.label("enable_prefix_caching") == "False"
    return (
        Switch(name=SwitchName.KV_CHECKSUM, on=None, flag=""),
        Switch(name=SwitchName.DEFERRED_RELEASE, on=None, flag=""),
        Switch(
            name=SwitchName.CACHE_SALT,
            on=True if uncached else None,
            flag="send cache_salt with every request by a route that keeps it, or start with "
            "--no-enable-prefix-caching",
        ),
        Switch(name=SwitchName.NO_AUTO_TRUNCATE, on=True, flag=""),
        Switch(name=SwitchName.POOL_CHECK, on=True, flag=""),
    )


ENGINE = Engine(
    name=NAME,
    wants=(PAGE, VERSION, DEVELOPER),
    speaks=_speaks,
    worker=_worker,
    owner="vllm",
    use=(PAGE,),
    metrics=_METRICS,
    arguments=_arguments,
)

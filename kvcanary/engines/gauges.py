"""What engines call the use of their pools and queues on ``/metrics`` and in ``/v1/loads``.

Captured: SGLang 0.5.23, vLLM 0.32.0. Older names stand behind newer ones: the first that is there counts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """How full one rank was at one moment. What is not told is None: unknown, never 0.

    Attributes:
        rank: the DP rank; None where the engine tells no ranks apart.
        queued: at least so many wait. Whether the waiting queue counts those of the hand-over between
            prefill and decode too differs by version, so it is the larger of the two.
        failures: transfers and hand-overs that failed since the process started.
    """

    rank: int | None
    pool_tokens: int | None = None
    used_tokens: int | None = None
    running: int | None = None
    queued: int | None = None
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Gauges:
    """The gauges of one engine.

    Attributes:
        copy_labels: further ranks (tensor, pipeline) that tell the same again.
        used: tokens in use.
        share: part of the pool that is in use, 0 to 1: where the engine tells no tokens.
        pool: capacity in tokens.
        pool_label: where the capacity is no value: a metric, its label that holds the capacity, and the one
            that holds the part of it that no request gets.
        queued: the waiting queue.
        handing_over: the queues between prefill and decode; a request stands in one of them.
    """

    engine: str
    rank_label: str
    running: tuple[str, ...]
    queued: tuple[str, ...]
    handing_over: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    share: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    pool_label: tuple[str, str, str] | None = None
    failures: tuple[str, ...] = ()
    copy_labels: tuple[str, ...] = ()

    @property
    def metrics(self) -> frozenset[str]:
        """The names of all that is read."""
        levels = (
            *self.running,
            *self.queued,
            *self.handing_over,
            *self.used,
            *self.share,
            *self.pool,
        )
        return frozenset({*levels, *self.failures, *(self.pool_label or ())[:1]})


SGLANG_GAUGES = Gauges(
    engine="sglang",
    rank_label="dp_rank",
    copy_labels=("pp_rank", "tp_rank"),
    used=("sglang:kv_used_tokens", "sglang:num_used_tokens"),
    share=("sglang:full_token_usage", "sglang:token_usage"),
    pool=("sglang:max_total_num_tokens",),
    running=("sglang:num_running_reqs",),
    queued=("sglang:num_queue_reqs",),
    handing_over=(
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_prealloc_queue_reqs",  # its name up to 0.5.10
        "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    ),
    failures=("sglang:num_bootstrap_failed_reqs_total", "sglang:num_transfer_failed_reqs_total"),
)
VLLM_GAUGES = Gauges(
    engine="vllm",
    rank_label="engine",
    share=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    # num_gpu_blocks is the sum over all ranks and is repeated on each: no pool of one
    # the size counts the null block in, and the share of it that is used does not
    pool_label=("vllm:cache_config_info", "kv_cache_size_tokens", "block_size"),
    running=("vllm:num_requests_running",),
    queued=("vllm:num_requests_waiting",),
    failures=(
        "vllm:nixl_num_failed_transfers_total",
        "vllm:nixl_num_kv_expired_reqs_total",
    ),
)
GAUGES = (SGLANG_GAUGES, VLLM_GAUGES)

MAX_COUNT = 1 << 53
MAX_RANKS = 1_024
_QUEUES = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
)


def gauges_of(metrics: Collection[str]) -> Gauges | None:
    """The engine whose gauges are among these names; None for none and for several."""
    found = [gauges for gauges in GAUGES if not gauges.metrics.isdisjoint(metrics)]
    return found[0] if len(found) == 1 else None


def levels_in_loads(document: object) -> tuple[Level, ...]:
    """SGLang's ``/v1/loads``: each rank asked at this moment. Empty when the document is none of it."""
    loads = document.get("loads") if isinstance(document, Mapping) else None
    if not isinstance(loads, Sequence) or isinstance(loads, str) or len(loads) > MAX_RANKS:
        return ()
    levels = [_load(load, alone=len(loads) == 1) for load in loads if isinstance(load, Mapping)]
    return tuple(level for level in levels if level is not None)


def _load(load: Mapping[object, object], *, alone: bool) -> Level | None:
    used, pool = _count(load.get("num_used_tokens")), _count(load.get("max_total_num_tokens"))
    rank = _count(load.get("dp_rank"))
    if (used is None and pool is None) or (rank is None and not alone):
        return None
    return Level(
        rank=None if alone else rank,
        pool_tokens=pool or None,
        used_tokens=used,
        running=_count(load.get("num_running_reqs")),
        queued=larger(_count(load.get("num_waiting_reqs")), _handing_over(load)),
    )


def _handing_over(load: Mapping[object, object]) -> int | None:
    queues = load.get("disaggregation")
    told = [_count(queues.get(name)) for name in _QUEUES] if isinstance(queues, Mapping) else []
    known = [number for number in told if number is not None]
    return sum(known) if known else None


def larger(one: int | None, other: int | None) -> int | None:
    """The larger of what is known."""
    return max((number for number in (one, other) if number is not None), default=None)


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < MAX_COUNT else None  # type: ignore[operator,return-value]

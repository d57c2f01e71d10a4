"""What is known of a deployment before any prompt is sent: its workers, pools and limits."""

from collections.abc import Iterable
from enum import StrEnum

from kvcanary.record.base import Recorded


class Role(StrEnum):
    """What a worker does."""

    PREFILL = "prefill"
    DECODE = "decode"
    UNIFIED = "unified"


class Told(Recorded):
    """Where one of a worker's figures comes from."""

    figure: str
    """Name of the field, such as ``pool_tokens``."""
    by: str
    """Document and field or metric, in our own words: ``/server_info max_total_num_tokens``."""


class Untold(Recorded):
    """A figure that could not be had, and the way to make it known."""

    figure: str
    remedy: str
    """The flag to set or the metric to scrape."""


class Rank(Recorded):
    """One DP rank of a worker: it has a pool of its own, and a request lives in one of them."""

    rank: int
    pool_tokens: int | None = None
    sliding_pool_tokens: int | None = None
    """Pool of the layers with a sliding window, where the engine keeps one apart."""
    used_tokens: int | None = None


class SwitchName(StrEnum):
    """Safety switches that engines have, under one name for all of them."""

    KV_CHECKSUM = "kv-checksum"
    """Transferred pages are verified by the receiver."""
    DEFERRED_RELEASE = "deferred-release"
    """Pages go back to the free list only when the last reader and writer is done."""
    CACHE_SALT = "cache-salt"
    """The prefix cache is keyed by tenant, and the route keeps the salt."""
    NO_AUTO_TRUNCATE = "no-auto-truncate"
    """Prompts that are too long are refused, not cut."""
    POOL_CHECK = "pool-check"
    """The engine refuses to start with a pool smaller than its context limit."""


class Switch(Recorded):
    """A safety switch of a running engine: on, off, or (None) not to be seen."""

    name: SwitchName
    on: bool | None
    flag: str
    """How to set it in this engine; empty where it cannot be set."""


class Parallelism(Recorded):
    """How many ways a worker's model is split or repeated."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None


class Worker(Recorded):
    """One engine process. What it does not tell is None: unknown, which is never a pass."""

    role: Role
    url: str
    engine: str
    version: str | None = None
    model: str | None = None
    """The model that it says it serves."""
    ranks: tuple[Rank, ...] = ()
    """Its DP ranks, where it tells them apart."""
    pool_tokens: int | None = None
    """KV capacity of its smallest DP rank."""
    host_pool_tokens: int | None = None
    """A tier of host memory behind the pool (HiCache): told apart, since no request can be served from it."""
    slots: int | None = None
    """Requests among which the pool is shared without being divided (llama.cpp's unified pool): each may
    promise the whole of it. None where every admitted request is sure of its tokens."""
    limit_tokens: int | None = None
    """Longest prompt that it accepts (SGLang: ``max_req_input_len - 1``)."""
    context_tokens: int | None = None
    page_tokens: int | None = None
    used_tokens: int | None = None
    """Tokens of the pool in use when it was asked, all ranks together."""
    bytes_per_token: float | None = None
    """GPU memory that one token of KV takes on one GPU."""
    memory_fraction: float | None = None
    """Part of the GPU memory that the engine was allowed (SGLang ``mem_fraction_static``)."""
    parallelism: Parallelism = Parallelism()
    switches: tuple[Switch, ...] = ()
    configuration: str | None = None
    """Fingerprint of its arguments, made with the site key: equal or not, and no more."""
    started_at: float | None = None
    """When its process started, Unix seconds (``process_start_time_seconds``)."""
    told: tuple[Told, ...] = ()
    untold: tuple[Untold, ...] = ()
    source: str = ""
    """Where most of the figures come from."""
    metrics_url: str | None = None
    """Where its metrics are, when not at ``/metrics`` of its URL."""

    @property
    def pools(self) -> int:
        """How many pools it has: one for each DP rank."""
        return max(1, len(self.ranks), self.parallelism.data or 1)

    @property
    def metrics_at(self) -> str:
        """URL of its metrics."""
        return self.metrics_url or f"{self.url}/metrics"

    def told_by(self, figure: str) -> str:
        """Where a figure comes from."""
        return next((told.by for told in self.told if told.figure == figure), self.source)


class GpuProcess(Recorded):
    """A process with memory on a GPU. Its name is not kept: command lines hold secrets."""

    pid: int
    used_bytes: int | None


class Gpu(Recorded):
    """One GPU, as NVML or DCGM tells it. Memory is in bytes."""

    host: str
    index: int
    worker: str | None = None
    """URL of the worker that runs on it, where the deployment file says so."""
    name: str | None = None
    uuid: str | None = None
    total_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """None where they cannot be seen."""
    mig: bool | None = None
    """Whether it is divided into instances."""
    uncorrectable_ecc: int | None = None
    """Errors since the driver was loaded; None where ECC is off or not told."""
    remapped_rows: int | None = None
    """Rows remapped after uncorrectable errors."""
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    xids: tuple[int, ...] = ()
    """XID errors: NVML's are events seen while kvcanary ran; DCGM's is the last one at all."""
    source: str
    """``NVML`` or ``DCGM``, and where it was read."""


class DangerWindow(Recorded):
    """Prompt lengths (both ends included) that one role refuses while another waits for them.

    Source: S30233, the GLM-5.3 path: ``prefill.max_req_input_len <= len < decode.max_req_input_len``.
    """

    first_tokens: int
    last_tokens: int


class Facts(Recorded):
    """The deployment as discovered. A capacity for one request is a minimum, never a sum."""

    context_tokens: int | None
    context_source: str
    workers: tuple[Worker, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    output_tokens: int | None = None
    """The output budget that is promised beside the prompt, within the context limit."""
    front_door: str | None = None
    """What answers at the front door: an engine itself or a router, such as ``sglang-router``."""
    notes: tuple[str, ...] = ()
    """What could not be discovered, and the way to make it known."""

    def _least(self, field: str, *roles: Role) -> int | None:
        values = [getattr(worker, field) for worker in self.workers if worker.role in roles]
        return min(values) if values and None not in values else None

    @property
    def split(self) -> bool:
        """Whether prefill and decode are workers of their own."""
        roles = {worker.role for worker in self.workers}
        return {Role.PREFILL, Role.DECODE} <= roles

    @property
    def prefill_pool_tokens(self) -> int | None:
        return self._least("pool_tokens", Role.PREFILL, Role.UNIFIED)

    @property
    def decode_pool_tokens(self) -> int | None:
        return self._least("pool_tokens", Role.DECODE, Role.UNIFIED)

    @property
    def limit_tokens(self) -> int | None:
        """The longest prompt that every worker accepts."""
        return self._least("limit_tokens", *Role)

    @property
    def surest_limit_tokens(self) -> int | None:
        """A prompt longer than this is refused wherever it is routed: the roomiest worker of either role."""
        limits = []
        for role in (Role.PREFILL, Role.DECODE):
            known = [w.limit_tokens for w in self.workers if w.role in (role, Role.UNIFIED)]
            if None in known or not known:
                return None
            limits.append(max(k for k in known if k is not None))
        return min(limits)

    @property
    def page_tokens(self) -> int | None:
        known = [worker.page_tokens for worker in self.workers if worker.page_tokens]
        return max(known) if known else None

    def window(self, refuser: Role, taker: Role) -> DangerWindow | None:
        """Lengths that some worker of one role refuses and some worker of another takes, as far as limits
        are known. Nothing here ends at the promised context."""
        refuses = [w.limit_tokens for w in self.workers if w.role is refuser and w.limit_tokens]
        takes = [w.limit_tokens for w in self.workers if w.role is taker and w.limit_tokens]
        if not refuses or not takes or min(refuses) >= max(takes):
            return None
        return DangerWindow(first_tokens=min(refuses) + 1, last_tokens=max(takes))

    @property
    def danger_window(self) -> DangerWindow | None:
        """Lengths within the promised context that a prefill worker refuses and a decode worker takes."""
        window = self.window(Role.PREFILL, Role.DECODE)
        if window is None or self.context_tokens is None:
            return window
        last = min(window.last_tokens, self.context_tokens)
        within = window.first_tokens <= last
        return window.model_copy(update={"last_tokens": last}) if within else None

    @property
    def names(self) -> tuple[str, ...]:
        """Short names of the workers, in their order."""
        return worker_names(self.workers)


def worker_names(workers: Iterable[Worker]) -> tuple[str, ...]:
    """Short names, in the order of the workers: P1, P2, D1 ... or W1 for unified ones."""
    letters = {Role.PREFILL: "P", Role.DECODE: "D", Role.UNIFIED: "W"}
    counts = dict.fromkeys(Role, 0)
    names = []
    for worker in workers:
        counts[worker.role] += 1
        names.append(f"{letters[worker.role]}{counts[worker.role]}")
    return tuple(names)

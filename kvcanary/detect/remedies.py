"""Remedies with the figure to set, in each engine's own flags. Where a figure is not known, none is made up."""

import math
from collections.abc import Sequence

from kvcanary.deployment.facts import Gpu, Worker

GIB = 1 << 30
FRACTION_STEP = 0.001
"""Memory fractions are told to so many parts, rounded up."""
_KEPT = {"sglang": 7}
"""Tokens that an engine keeps of its context length or pool beside the longest prompt; else one of output.

SGLang: ``max_req_input_len = min(context - 1, pool - 1) - 5``, refused from there on.
"""
LARGEST_FRACTION = 0.98
"""Beyond this nothing is left for activations: no remedy."""

_CONTEXT_FLAGS = {
    "sglang": "--context-length {n}",
    "vllm": "--max-model-len {n}",
    "llama.cpp": "-c {n}",
    "tensorrt-llm": "--max_seq_len {n}",
    "tgi": "--max-total-tokens {n}",
    "ollama": "OLLAMA_CONTEXT_LENGTH={n}",
    "lmdeploy": "--session-len {n}",
}
_FRACTION_FLAGS = {
    "sglang": "--mem-fraction-static",
    "vllm": "--gpu-memory-utilization",
    "tensorrt-llm": "--kv_cache_free_gpu_memory_fraction",
    "tgi": "--cuda-memory-fraction",
    "lmdeploy": "--cache-max-entry-count",
}
_OF_FREE = frozenset({"tensorrt-llm", "lmdeploy"})
"""Engines whose fraction is one of the memory that is left free: no step can be computed."""


def context_flag(engine: str, tokens: int) -> str:
    """How this engine is told its context limit."""
    return _CONTEXT_FLAGS.get(engine, "context limit {n}").format(n=tokens)


def fit_or_grow(worker: Worker, pool: int, context: int, gpus: Sequence[Gpu]) -> str:
    """For a pool (usable tokens) below the context: the context that fits, or the memory that is missing.

    Pages count whole: a context of some pages and a bit takes one more.
    """
    page = worker.page_tokens or 1
    needed = -(-context // page) * page
    grow = f"ake room for the missing {needed - pool:,} tokens: {_growth(worker, needed, needed - pool, gpus)}."
    if pool <= _KEPT.get(worker.engine, 1):  # no prompt fits
        return f"M{grow}"
    return (
        f"Either promise what fits: {context_flag(worker.engine, pool)} on every worker and {pool:,} at the "
        f"front door{_accepted(worker, pool)}. Or m{grow}"
    )


def _accepted(worker: Worker, pool: int) -> str:
    """What the engine keeps for itself, where that is known."""
    kept = _KEPT.get(worker.engine)
    return f" (prompts up to {pool - kept:,} are accepted then)" if kept else ""


def _growth(worker: Worker, needed: int, missing: int, gpus: Sequence[Gpu]) -> str:
    flag = _FRACTION_FLAGS.get(worker.engine)
    if worker.bytes_per_token is None:
        how = f" (raise {flag})" if flag else ""
        return f"what a token of KV takes is not known, so raise the pool step by step{how}"
    missing_bytes = math.ceil(missing * worker.bytes_per_token)
    parts = [
        f"{_size(missing_bytes)} more on each GPU ({worker.bytes_per_token:,.0f} bytes a token)"
    ]
    total = min((g.total_bytes for g in gpus if g.total_bytes), default=None)
    if flag and total and worker.engine not in _OF_FREE:
        parts.append(_fraction(flag, worker.memory_fraction, missing_bytes, total))
    if worker.engine == "vllm":
        whole = needed + (worker.page_tokens or 1)  # the null block is no request's
        parts.append(f"or --kv-cache-memory-bytes {math.ceil(whole * worker.bytes_per_token)}")
    return "; ".join(parts)


def _size(count: int) -> str:
    """Rounded up: what is told is to be enough."""
    unit, name = (GIB, "GiB") if count >= GIB / 10 else (GIB >> 10, "MiB")
    return f"{math.ceil(count / unit * 100) / 100:,.2f} {name}"


def _fraction(flag: str, now: float | None, missing_bytes: int, total: int) -> str:
    step = math.ceil(missing_bytes / total / FRACTION_STEP) * FRACTION_STEP
    of = f"of a GPU with {total / GIB:,.1f} GiB"
    if now is None:
        return f"{flag} higher by {step:.3f} {of}"
    if now + step > LARGEST_FRACTION:
        return (
            f"{flag} would have to rise from {now:.3f} to {now + step:.3f} {of}, which leaves nothing for "
            "the rest: use more GPUs, or KV of fewer bits"
        )
    return f"{flag} {now + step:.3f} instead of {now:.3f} {of}"


def room_for_output(worker: Worker, pool: int, output: int) -> str:
    """For a pool (usable tokens) that holds the longest prompts and not their output."""
    flag = context_flag(worker.engine, pool)
    longest = f" and prompts of at most {max(0, pool - output):,}" if output else ""
    return f"Promise {pool:,} tokens{longest} ({flag} on every worker), or enlarge the pool."


def slots(count: int, each: int, pool: int) -> str:
    """For slots that share a pool (llama.cpp ``--kv-unified``): fewer slots, a larger pool, or shares."""
    fit = max(1, pool // each)
    return (
        f"Run {fit} slot{'s' if fit > 1 else ''} (-np {fit}), give the pool {count * each:,} tokens "
        f"(-c {count * each}), or divide it (--no-kv-unified) and promise {pool // count:,} tokens."
    )


def same_limit(refusing: Worker, limit: int) -> str:
    """For roles with different limits: the largest prompt that both take, and how to make them agree."""
    context, kept = refusing.context_tokens, _KEPT.get(refusing.engine, 1)
    if context is None or context - limit > kept:  # its pool sets the limit, not its context length
        page = refusing.page_tokens or 1
        context = (limit + kept) // page * page or limit + kept
    return (
        f"Give both roles one limit: {context_flag(refusing.engine, context)} on every worker (what "
        f"{refusing.role} can hold), and refuse prompts of more than {context - kept:,} tokens at the front door."
    )


def alike(worker: Worker, limit: int) -> str:
    """For replicas with different limits: the context length with which all accept what the least one does."""
    context = limit + _KEPT.get(worker.engine, 1)
    return (
        f"Give every replica the pool of the one that accepts most, or all of them one context length "
        f"({context_flag(worker.engine, context)}), and promise no more than {context:,} tokens."
    )

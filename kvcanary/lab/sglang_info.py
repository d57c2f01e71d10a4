"""What workers and the router say about themselves, in the shapes of SGLang and sglang-router."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from dataclasses import dataclass
from typing import Any

from kvcanary.lab.decode import DecodeWorker
from kvcanary.lab.prefill import PrefillWorker
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.tokenizer import IntArray

Worker = PrefillWorker | DecodeWorker


@dataclass(frozen=True)
class PoolUse:
    """Tokens of one worker's pool; free is ``available + evictable``."""

    total_tokens: int
    available_tokens: int
    evictable_tokens: int

    @property
    def used_tokens(self) -> int:
        """Held by requests."""
        return self.total_tokens - self.available_tokens - self.evictable_tokens

    @property
    def usage(self) -> float:
        """Share of the pool that requests hold, to two decimals as the engine reports it."""
        return round(self.used_tokens / self.total_tokens, 2)


def pool_use(worker: Worker) -> PoolUse:
    """How full a worker's pool is now."""
    page = worker.pool.page_tokens
    return PoolUse(worker.pool.tokens, worker.pool.free_pages * page, worker.evictable_pages * page)


@dataclass(frozen=True)
class Queues:
    """Requests by where they wait, under the names that the engine gives the queues."""

    prefill_bootstrap: int = 0
    prefill_inflight: int = 0
    decode_prealloc: int = 0
    decode_transfer: int = 0


def queues(worker: Worker) -> Queues:
    """A worker's queues now."""
    if isinstance(worker, PrefillWorker):
        return Queues(
            prefill_bootstrap=worker.queued_requests, prefill_inflight=worker.inflight_requests
        )
    return Queues(
        decode_prealloc=worker.queued_requests, decode_transfer=worker.transferring_requests
    )


def server_info(scenario: Scenario, worker: Worker) -> dict[str, Any]:
    """``/server_info``: resolved arguments, the pool, and (the engine's habit) key fields."""
    arguments = {
        "model_path": scenario.model_name,
        "tokenizer_path": scenario.model_name,
        "served_model_name": scenario.model_name,
        "context_length": scenario.context_tokens,
        "max_total_tokens": None,
        "chunked_prefill_size": scenario.prefill_chunk_tokens,
        "page_size": scenario.page_tokens,
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "disable_radix_cache": worker.role == "decode",
        "disaggregation_mode": worker.role,
        "num_reserved_decode_tokens": scenario.reserved_decode_tokens,
        "api_key": None,
        "admin_api_key": None,
        "enable_metrics": True,
        "enable_cache_report": True,
    }
    memory = {"weight": 0.0, "kvcache": 0.0, "token_capacity": worker.pool.tokens, "graph": 0.0}
    return {
        **arguments,
        "status": "ready",
        "max_total_num_tokens": worker.pool.tokens,
        "max_req_input_len": worker.limits.max_req_input_len,
        "internal_states": [{**arguments, "memory_usage": memory}],
        "version": scenario.engine_version,
    }


def loads(scenario: Scenario, worker: Worker) -> dict[str, Any]:
    """``/v1/loads`` with one DP rank."""
    now = dt.datetime.now(dt.UTC)
    use, queue = pool_use(worker), queues(worker)
    return {
        "timestamp": now.isoformat(),
        "version": scenario.engine_version,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": [
            {
                "timestamp": now.timestamp(),
                "dp_rank": 0,
                "num_running_reqs": worker.running_requests,
                "num_waiting_reqs": worker.queued_requests,
                "num_used_tokens": use.used_tokens,
                "max_total_num_tokens": use.total_tokens,
                "token_usage": use.usage,
                "memory": {
                    "weight_gb": 0.0,
                    "kv_cache_gb": 0.0,
                    "graph_gb": 0.0,
                    "token_capacity": use.total_tokens,
                },
                "disaggregation": {
                    "mode": worker.role,
                    "prefill_bootstrap_queue_reqs": queue.prefill_bootstrap,
                    "prefill_inflight_queue_reqs": queue.prefill_inflight,
                    "decode_prealloc_queue_reqs": queue.decode_prealloc,
                    "decode_transfer_queue_reqs": queue.decode_transfer,
                    "decode_retracted_queue_reqs": 0,
                },
                "queues": {"waiting": worker.queued_requests, "grammar": 0, "paused": 0},
            }
        ],
    }


def model_info(scenario: Scenario, worker: Worker) -> dict[str, Any]:
    """``/model_info``."""
    return {
        "model_path": scenario.model_name,
        "served_model_name": scenario.model_name,
        "tokenizer_path": scenario.model_name,
        "is_generation": True,
        "weight_version": "default",
        "disaggregation_mode": worker.role,
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }


def models(scenario: Scenario) -> dict[str, Any]:
    """``/v1/models`` as a worker gives it, or as the router does: without a length."""
    card: dict[str, Any] = {"id": scenario.model_name, "object": "model", "owned_by": "local"}
    if scenario.models_show_length:
        card |= {
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": scenario.model_name,
            "parent": None,
            "max_model_len": scenario.context_tokens,
        }
    return {"object": "list", "data": [card]}


def router_workers(scenario: Scenario, urls: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The router's ``/workers``; ``urls`` holds (role, url)."""
    workers = []
    for role, url in urls:
        worker: dict[str, Any] = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, url)),
            "url": url,
            "model_id": scenario.model_name,
            "priority": 50,
            "cost": 1.0,
            "worker_type": role,
            "is_healthy": True,
            "load": 0,
            "connection_mode": "HTTP",
            "metadata": {
                "model_path": scenario.model_name,
                "served_model_name": scenario.model_name,
                "dp_size": "1",
                "tp_size": "1",
                "disaggregation_mode": role,
            },
            "disable_health_check": False,
        }
        if role == "prefill":
            worker["bootstrap_port"] = 8998
        workers.append(worker)
    stats = {
        f"{kind}_count": sum(role == kind for role, _ in urls)
        for kind in ("prefill", "decode", "regular")
    }
    return {"workers": workers, "total": len(workers), "stats": stats}


def tokenized(scenario: Scenario, ids: IntArray) -> dict[str, Any]:
    """``/tokenize``."""
    return {
        "tokens": ids.tolist(),
        "count": len(ids),
        "max_model_len": scenario.context_tokens,
    }

"""What workers and the router say about themselves, in the shapes of SGLang and sglang-router."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from dataclasses import dataclass
from typing import Any

from kvcanary.lab.prefill import PrefillRank
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.tokenizer import IntArray
from kvcanary.lab.worker import AnyWorker, Rank


@dataclass(frozen=True)
class WorkerAddress:
    """Where a worker's own port is. ``role``: ``prefill`` or ``decode``; ``ranks``: its DP size."""

    name: str
    role: str
    url: str
    ranks: int


@dataclass(frozen=True)
class PoolUse:
    """Tokens of one rank's pool; free is ``available + evictable``."""

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


def pool_use(rank: Rank) -> PoolUse:
    """How full a rank's pool is now."""
    page = rank.pool.page_tokens
    return PoolUse(rank.pool.tokens, rank.pool.free_pages * page, rank.evictable_pages * page)


@dataclass(frozen=True)
class Queues:
    """Requests by where they wait, under the names that the engine gives the queues."""

    prefill_bootstrap: int = 0
    prefill_inflight: int = 0
    decode_prealloc: int = 0
    decode_transfer: int = 0


def queues(rank: Rank) -> Queues:
    """A rank's queues now."""
    if isinstance(rank, PrefillRank):
        return Queues(
            prefill_bootstrap=rank.queued_requests, prefill_inflight=rank.inflight_requests
        )
    return Queues(decode_prealloc=rank.queued_requests, decode_transfer=rank.transferring_requests)


def server_info(scenario: Scenario, worker: AnyWorker) -> dict[str, Any]:
    """``/server_info``: resolved arguments, the pool of rank 0 (whatever the others have), each
    rank's state, and (the engine's habit) key fields."""
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
        "dp_size": len(worker.ranks),
        "disable_radix_cache": worker.role == "decode",
        "disaggregation_mode": worker.role,
        "allow_auto_truncate": scenario.auto_truncate,
        "num_reserved_decode_tokens": scenario.reserved_decode_tokens,
        "api_key": None,
        "admin_api_key": None,
        "enable_metrics": True,
        "enable_cache_report": True,
    }
    memory = {"weight": 0.0, "kvcache": 0.0, "graph": 0.0}
    first = worker.ranks[0]
    return {
        **arguments,
        "status": "ready",
        "max_total_num_tokens": first.pool.tokens,
        "max_req_input_len": first.limits.max_req_input_len,
        "internal_states": [
            {**arguments, "memory_usage": {**memory, "token_capacity": rank.pool.tokens}}
            for rank in worker.ranks
        ],
        "version": worker.version,
    }


def loads(worker: AnyWorker) -> dict[str, Any]:
    """``/v1/loads``: one entry for each DP rank."""
    now = dt.datetime.now(dt.UTC)
    return {
        "timestamp": now.isoformat(),
        "version": worker.version,
        "accelerator": None,
        "num_accelerators": len(worker.ranks),
        "loads": [_load(rank, now.timestamp()) for rank in worker.ranks],
    }


def _load(rank: Rank, now: float) -> dict[str, Any]:
    use, queue = pool_use(rank), queues(rank)
    return {
        "timestamp": now,
        "dp_rank": rank.number,
        "num_running_reqs": rank.running_requests,
        "num_waiting_reqs": rank.queued_requests,
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
            "mode": rank.role,
            "prefill_bootstrap_queue_reqs": queue.prefill_bootstrap,
            "prefill_inflight_queue_reqs": queue.prefill_inflight,
            "decode_prealloc_queue_reqs": queue.decode_prealloc,
            "decode_transfer_queue_reqs": queue.decode_transfer,
            "decode_retracted_queue_reqs": 0,
        },
        "queues": {"waiting": rank.queued_requests, "grammar": 0, "paused": 0},
    }


def model_info(scenario: Scenario, worker: AnyWorker) -> dict[str, Any]:
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
    base = scenario.model_name
    cards = [_card(scenario, base, None)]
    cards += [_card(scenario, f"{base}:{adapter}", base) for adapter in scenario.adapters]
    return {"object": "list", "data": cards}


def _card(scenario: Scenario, name: str, parent: str | None) -> dict[str, Any]:
    card: dict[str, Any] = {"id": name, "object": "model", "owned_by": "local"}
    if scenario.models_show_length:
        card |= {
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": parent,
            "max_model_len": scenario.context_tokens,
        }
    return card


def router_workers(scenario: Scenario, addresses: tuple[WorkerAddress, ...]) -> dict[str, Any]:
    """The router's ``/workers``."""
    roles = [address.role for address in addresses]
    return {
        "workers": [_router_worker(scenario, address) for address in addresses],
        "total": len(addresses),
        "stats": {f"{role}_count": roles.count(role) for role in ("prefill", "decode", "regular")},
    }


def _router_worker(scenario: Scenario, address: WorkerAddress) -> dict[str, Any]:
    worker: dict[str, Any] = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, address.url)),
        "url": address.url,
        "model_id": scenario.model_name,
        "priority": 50,
        "cost": 1.0,
        "worker_type": address.role,
        "is_healthy": True,
        "load": 0,
        "connection_mode": "HTTP",
        "metadata": {
            "model_path": scenario.model_name,
            "served_model_name": scenario.model_name,
            "dp_size": str(address.ranks),
            "tp_size": "1",
            "disaggregation_mode": address.role,
        },
        "disable_health_check": False,
    }
    if address.role == "prefill":
        worker["bootstrap_port"] = 8998
    return worker


def tokenized(scenario: Scenario, ids: IntArray) -> dict[str, Any]:
    """``/tokenize``."""
    return {
        "tokens": ids.tolist(),
        "count": len(ids),
        "max_model_len": scenario.context_tokens,
    }

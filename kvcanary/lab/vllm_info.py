"""What vLLM's workers and vllm-router say about themselves; keys are the wire's."""

from __future__ import annotations

import time
from typing import Any

from kvcanary.lab.scenario import Scenario
from kvcanary.lab.sglang_info import WorkerAddress
from kvcanary.lab.tokenizer import IntArray


def models(scenario: Scenario, role: str) -> dict[str, Any]:
    """``/v1/models`` of a worker of that role."""
    base = scenario.model_name
    cards = [_card(scenario, role, base, None)]
    cards += [_card(scenario, role, f"{base}:{adapter}", base) for adapter in scenario.adapters]
    return {"object": "list", "data": cards}


def _card(scenario: Scenario, role: str, name: str, parent: str | None) -> dict[str, Any]:
    card: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "vllm",
        "root": name,
        "parent": parent,
    }
    if scenario.models_show_length:
        card["max_model_len"] = scenario.context_of(role)
    return card


def router_workers(addresses: tuple[WorkerAddress, ...]) -> dict[str, Any]:
    """The router's ``/workers``: it knows no model names and no DP ranks."""
    roles = [address.role for address in addresses]
    return {
        "workers": [_router_worker(address) for address in addresses],
        "total": len(addresses),
        "stats": {f"{role}_count": roles.count(role) for role in ("prefill", "decode", "regular")},
    }


def _router_worker(address: WorkerAddress) -> dict[str, Any]:
    worker: dict[str, Any] = {
        "url": address.url,
        "model_id": "unknown",
        "worker_type": address.role,
        "is_healthy": True,
        "load": 0,
        "connection_mode": "Http",
        "priority": 50,
        "cost": 1.0,
    }
    return {**worker, "bootstrap_port": None} if address.role == "prefill" else worker


def listed_workers(addresses: tuple[WorkerAddress, ...]) -> dict[str, Any]:
    """The router's ``/list_workers``."""
    return {"urls": [address.url for address in addresses]}


def tokenized(scenario: Scenario, role: str, ids: IntArray) -> dict[str, Any]:
    """``/tokenize``."""
    return {
        "count": len(ids),
        "max_model_len": scenario.context_of(role),
        "tokens": ids.tolist(),
        "token_strs": None,
    }

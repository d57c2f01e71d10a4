"""A KV connector for vLLM that can be told to leave pages out: the incident's fault, in a real engine.

It runs inside vLLM's own environment, on the decode side. Healthy, it is vLLM's ``ExampleConnector``: prefill
writes a prompt's KV to a folder, decode reads it from there into its own pages. Faulty, some of the pages keep
what their last owner wrote, and the engine is told that all is well. Extra config: ``shared_storage_path``,
``fault_file`` and ``fault_log`` (`fault.py` says what is in them).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector

from tests.engines.real.fault import LATE_STEPS, Fault, Mode, Transfer


class FaultyConnector(ExampleConnector):  # type: ignore[misc]  # vLLM is not installed where mypy runs
    """Loads what the fault lets through."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        extra = self._kv_transfer_config.get_from_extra_config
        self._fault_file = Path(extra("fault_file", ""))
        self._fault_log = Path(extra("fault_log", ""))
        self._long_ones = 0
        self._before: dict[str, torch.Tensor] = {}
        """KV of the prompt that was transferred before, by layer."""
        self._late: list[tuple[int, Callable[[], None]]] = []
        """Steps to go, and the write."""

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """As the base class, which subtracts one page too many where the prefix cache has all."""
        tokens, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return max(0, tokens or 0), later

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """As the base class, with the requests' names for the log."""
        waiting = dict.fromkeys(self._requests_need_load)
        names = [r.req_id for r in scheduler_output.scheduled_new_reqs if r.req_id in waiting]
        cached = scheduler_output.scheduled_cached_reqs
        names += [r for r in cached.req_ids if r in cached.resumed_req_ids and r in waiting]
        meta = super().build_connector_meta(scheduler_output)
        loads = [request for request in meta.requests if not request.is_store]
        for request, name in zip(loads, names, strict=True):
            request.name = name
        return meta

    def start_load_kv(self, forward_context: Any, **_: Any) -> None:
        """Write the transferred KV into this engine's pages, as far as the fault lets it."""
        self._write_late_ones()
        if forward_context.attn_metadata is None:
            return
        layers = {
            name: layer.kv_cache
            for name, layer in forward_context.no_compile_layers.items()
            if getattr(layer, "kv_cache", None) is not None
        }
        for request in self._get_connector_metadata().requests:
            if not request.is_store:
                self._load(request, layers)

    def _load(self, request: Any, layers: dict[str, torch.Tensor]) -> None:
        sent = self._stored(request, layers)
        slots = request.slot_mapping
        fault = Fault.read(self._fault_file)
        tokens, page = len(slots), self._block_size
        self._long_ones += tokens > fault.longer_than
        hit = fault.hits(tokens, self._long_ones)
        pages = tokens // page
        missing = fault.missing(pages) if hit else range(0)
        before, self._before = self._before, sent
        if hit and fault.mode is Mode.OTHER and before:
            sent = before
        covered = min(tokens, *(len(kv) for kv in sent.values()))
        positions = torch.arange(covered)
        kept = (positions < missing.start * page) | (positions >= missing.stop * page)

        def write(positions: torch.Tensor) -> None:
            chosen = slots[positions]
            for name, cache in layers.items():
                cache[chosen // page, :, chosen % page] = sent[name][positions]

        if hit and fault.mode is Mode.LATE:
            self._late.append((LATE_STEPS, lambda: write(positions)))
        else:
            write(positions[kept])
        other = hit and fault.mode is Mode.OTHER and bool(before)
        Transfer(
            request=request.name,
            tokens=tokens,
            mode=fault.mode if hit else Mode.NONE,
            pages=pages,
            wrong_pages=pages if other else len(missing),
        ).append(self._fault_log)

    def _stored(self, request: Any, layers: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What prefill has stored for the prompt. One that was preempted comes back with its answer behind it."""
        tokens = request.token_ids
        while len(tokens):
            folder = Path(self._generate_foldername_debug(tokens, request.mm_hashes))
            if folder.exists():
                return {n: load_file(folder / f"{n}.safetensors")["kv_cache"] for n in layers}
            tokens = tokens[: -self._block_size]
        raise FileNotFoundError(f"no KV is stored for {request.name}")

    def _write_late_ones(self) -> None:
        due = [write for steps, write in self._late if steps <= 0]
        self._late = [(steps - 1, write) for steps, write in self._late if steps > 0]
        for write in due:
            write()

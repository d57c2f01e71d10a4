"""A worker's ``/metrics``: SGLang's names and labels, read from the worker at each scrape.

The scheduler of each rank has its own series, told apart by ``dp_rank`` where there are several.
The tokenizer's counters (requests, prompt and generation tokens) are the whole worker's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcanary.lab.counters import Tally
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.sglang_info import pool_use, queues
from kvcanary.lab.worker import AnyWorker, Rank

_PROCESS_BYTES: Final = 1 << 30
_BYTES_PER_TOKEN: Final = 1 << 10


class WorkerCollector(Collector):
    """Gauges and counters of one worker."""

    def __init__(self, scenario: Scenario, worker: AnyWorker) -> None:
        self._scenario = scenario
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """What the worker is like now."""
        ranks = [(self._labels(rank), rank) for rank in self._worker.ranks]
        families: dict[str, GaugeMetricFamily] = {}
        for labels, rank in ranks:
            for name, (text, value) in self._gauges(rank).items():
                gauge = families.get(name)
                if gauge is None:
                    gauge = GaugeMetricFamily(f"sglang:{name}", text, labels=list(labels))
                    families[name] = gauge
                gauge.add_metric(list(labels.values()), value)
        yield from families.values()
        yield self._realtime_tokens(ranks)
        yield from self._counters()
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            value=self._worker.started,
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            value=self._resident_bytes(),
        )

    def _resident_bytes(self) -> int:
        """A fixed part, and what earlier ones left behind."""
        return _PROCESS_BYTES + _BYTES_PER_TOKEN * self._worker.lost_tokens

    def _labels(self, rank: Rank) -> dict[str, str]:
        labels = {
            "model_name": self._scenario.model_name,
            "engine_type": rank.role,
            "tp_rank": "0",
            "pp_rank": "0",
        }
        return labels | ({"dp_rank": str(rank.number)} if len(self._worker.ranks) > 1 else {})

    def _gauges(self, rank: Rank) -> dict[str, tuple[str, float]]:
        use, queue = pool_use(rank), queues(rank)
        return {
            "max_total_num_tokens": ("Maximum total number of tokens.", use.total_tokens),
            "page_size": ("KV cache page size in tokens.", rank.pool.page_tokens),
            "num_pages": ("Number of KV cache pages.", rank.pool.page_count),
            "context_len": ("Maximum context length.", self._scenario.context_tokens),
            "num_running_reqs": ("The number of running requests.", rank.running_requests),
            "num_queue_reqs": (
                "The number of requests in the waiting queue.",
                rank.queued_requests,
            ),
            "token_usage": ("The token usage.", use.usage),
            "full_token_usage": ("The token usage for full attention layers.", use.usage),
            "num_used_tokens": ("The number of used tokens.", use.used_tokens),
            "kv_available_tokens": ("Free KV cache tokens.", use.available_tokens),
            "kv_evictable_tokens": ("Cached KV tokens that can be evicted.", use.evictable_tokens),
            "kv_used_tokens": ("KV cache tokens in use.", use.used_tokens),
            "num_prefill_bootstrap_queue_reqs": (
                "Requests in the prefill bootstrap queue.",
                queue.prefill_bootstrap,
            ),
            "num_prefill_inflight_queue_reqs": (
                "Requests in the prefill inflight queue.",
                queue.prefill_inflight,
            ),
            "num_decode_prealloc_queue_reqs": (
                "Requests in the decode prealloc queue.",
                queue.decode_prealloc,
            ),
            "num_decode_transfer_queue_reqs": (
                "Requests in the decode transfer queue.",
                queue.decode_transfer,
            ),
        }

    def _realtime_tokens(self, ranks: list[tuple[dict[str, str], Rank]]) -> CounterMetricFamily:
        """The one counter by which ranks can be told apart."""
        family = CounterMetricFamily(
            "sglang:realtime_tokens",
            "Tokens processed by the scheduler, by mode.",
            labels=["mode", *ranks[0][0]],
        )
        for labels, rank in ranks:
            counters = rank.counters
            if rank.role == "prefill":
                modes = {
                    "prefill_compute": counters.prompt_tokens.total - counters.cached_tokens,
                    "prefill_cache": counters.cached_tokens,
                }
            else:
                modes = {"decode": counters.generation_tokens.total}
            for mode, value in modes.items():
                family.add_metric([mode, *labels.values()], value)
        return family

    def _counters(self) -> Iterator[Metric]:
        counters = [rank.counters for rank in self._worker.ranks]
        for name, text, tallies in (
            (
                "prompt_tokens",
                "Number of prefill tokens processed.",
                [c.prompt_tokens for c in counters],
            ),
            (
                "generation_tokens",
                "Number of generation tokens.",
                [c.generation_tokens for c in counters],
            ),
            ("num_requests", "Number of requests processed.", [c.requests for c in counters]),
        ):
            yield self._tally(name, text, tallies)
        for name, text, values in (
            (
                "cached_tokens",
                "Number of cached prompt tokens.",
                [c.cached_tokens for c in counters],
            ),
            (
                "num_aborted_requests",
                "Number of aborted requests.",
                [c.aborted_requests for c in counters],
            ),
        ):
            counter = CounterMetricFamily(
                f"sglang:{name}", text, labels=["engine_type", "model_name"]
            )
            counter.add_metric([self._worker.role, self._scenario.model_name], sum(values))
            yield counter

    def _tally(self, name: str, text: str, tallies: list[Tally]) -> CounterMetricFamily:
        counter = CounterMetricFamily(
            f"sglang:{name}", text, labels=["engine_type", "is_streaming", "model_name"]
        )
        for streaming, value in (
            ("false", sum(tally.plain for tally in tallies)),
            ("true", sum(tally.streaming for tally in tallies)),
        ):
            labels = [self._worker.role, streaming, self._scenario.model_name]
            counter.add_metric(labels, value)
        return counter

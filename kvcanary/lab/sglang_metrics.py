"""A worker's ``/metrics``: SGLang's names and labels, read from the worker at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcanary.lab.counters import Tally
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.sglang_info import Worker, pool_use, queues

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class WorkerCollector(Collector):
    """Gauges and counters of one worker. ``started``: seconds since 1970."""

    def __init__(self, scenario: Scenario, worker: Worker, started: float) -> None:
        self._scenario = scenario
        self._worker = worker
        self._started = started

    def collect(self) -> Iterator[Metric]:
        """What the worker is like now."""
        labels = {
            "model_name": self._scenario.model_name,
            "engine_type": self._worker.role,
            "tp_rank": "0",
            "pp_rank": "0",
        }
        for name, (text, value) in self._gauges().items():
            gauge = GaugeMetricFamily(f"sglang:{name}", text, labels=list(labels))
            gauge.add_metric(list(labels.values()), value)
            yield gauge
        yield from self._counters()
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            value=self._started,
        )

    def _gauges(self) -> dict[str, tuple[str, float]]:
        worker, use, queue = self._worker, pool_use(self._worker), queues(self._worker)
        return {
            "max_total_num_tokens": ("Maximum total number of tokens.", use.total_tokens),
            "page_size": ("KV cache page size in tokens.", worker.pool.page_tokens),
            "num_pages": ("Number of KV cache pages.", worker.pool.page_count),
            "context_len": ("Maximum context length.", self._scenario.context_tokens),
            "num_running_reqs": ("The number of running requests.", worker.running_requests),
            "num_queue_reqs": (
                "The number of requests in the waiting queue.",
                worker.queued_requests,
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

    def _counters(self) -> Iterator[Metric]:
        counters = self._worker.counters
        for name, text, tally in (
            ("prompt_tokens", "Number of prefill tokens processed.", counters.prompt_tokens),
            ("generation_tokens", "Number of generation tokens.", counters.generation_tokens),
            ("num_requests", "Number of requests processed.", counters.requests),
        ):
            yield self._tally(name, text, tally)
        for name, text, value in (
            ("cached_tokens", "Number of cached prompt tokens.", counters.cached_tokens),
            ("num_aborted_requests", "Number of aborted requests.", counters.aborted_requests),
        ):
            counter = CounterMetricFamily(
                f"sglang:{name}", text, labels=["engine_type", "model_name"]
            )
            counter.add_metric([self._worker.role, self._scenario.model_name], value)
            yield counter

    def _tally(self, name: str, text: str, tally: Tally) -> CounterMetricFamily:
        counter = CounterMetricFamily(
            f"sglang:{name}", text, labels=["engine_type", "is_streaming", "model_name"]
        )
        for streaming, value in (("false", tally.plain), ("true", tally.streaming)):
            labels = [self._worker.role, streaming, self._scenario.model_name]
            counter.add_metric(labels, value)
        return counter


def exposition(collector: WorkerCollector) -> bytes:
    """The text that a scrape gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)

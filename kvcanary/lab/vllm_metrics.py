"""A worker's ``/metrics`` in vLLM's names and labels, read from the worker at each scrape.

Each DP rank is an engine of its own. Blocks include the null block, which no request ever gets;
``num_gpu_blocks`` is summed over the engines and repeated on each row, as vLLM has it.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcanary.lab.prefill import PrefillRank
from kvcanary.lab.scenario import Scenario
from kvcanary.lab.sglang_info import pool_use
from kvcanary.lab.worker import AnyWorker, Rank


class VllmCollector(Collector):
    """Gauges and counters of one worker."""

    def __init__(self, scenario: Scenario, worker: AnyWorker) -> None:
        self._scenario = scenario
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """What the worker is like now."""
        yield self._cache_config()
        for name, text, values in (
            ("num_requests_running", "Number of requests in model execution batches.", _running),
            ("num_requests_waiting", "Number of requests waiting to be processed.", _waiting),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", _usage),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=["engine", "model_name"])
            for rank in self._worker.ranks:
                gauge.add_metric(self._labels(rank), values(rank))
            yield gauge
        for name, text, count in (
            ("prompt_tokens", "Number of prefill tokens processed.", _prompt_tokens),
            ("prompt_tokens_cached", "Number of cached prompt tokens.", _cached_tokens),
            ("prefix_cache_queries", "Prefix cache queries, in tokens.", _prompt_tokens),
            ("prefix_cache_hits", "Prefix cache hits, in tokens.", _cached_tokens),
            ("generation_tokens", "Number of generation tokens processed.", _generation_tokens),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=["engine", "model_name"])
            for rank in self._worker.ranks:
                counter.add_metric(self._labels(rank), count(rank))
            yield counter
        yield self._requests()
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            value=self._worker.started,
        )

    def _labels(self, rank: Rank) -> list[str]:
        return [str(rank.number), self._scenario.model_name]

    def _cache_config(self) -> GaugeMetricFamily:
        page = self._scenario.page_tokens
        blocks = sum(rank.pool.page_count + 1 for rank in self._worker.ranks)
        names = (
            "block_size",
            "cache_dtype",
            "enable_prefix_caching",
            "engine",
            "kv_cache_size_tokens",
            "num_gpu_blocks",
        )
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=names
        )
        for rank in self._worker.ranks:
            tokens = (rank.pool.page_count + 1) * page
            caches = str(self._worker.role == "prefill")
            values = (str(page), "auto", caches, str(rank.number), str(tokens), str(blocks))
            family.add_metric(values, 1)
        return family

    def _requests(self) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "vllm:request_success",
            "Count of successfully processed requests.",
            labels=["engine", "finished_reason", "model_name"],
        )
        for rank in self._worker.ranks:
            engine, model = self._labels(rank)
            done = rank.counters.requests.total
            counts = {"stop": 0, "length": done, "abort": rank.counters.aborted_requests}
            for reason, count in counts.items():
                family.add_metric([engine, reason, model], count)
        return family


def _running(rank: Rank) -> float:
    return rank.running_requests


def _waiting(rank: Rank) -> float:
    return rank.queued_requests + (
        0 if isinstance(rank, PrefillRank) else rank.transferring_requests
    )


def _usage(rank: Rank) -> float:
    use = pool_use(rank)
    return use.used_tokens / use.total_tokens


def _prompt_tokens(rank: Rank) -> float:
    return rank.counters.prompt_tokens.total


def _cached_tokens(rank: Rank) -> float:
    return rank.counters.cached_tokens


def _generation_tokens(rank: Rank) -> float:
    return rank.counters.generation_tokens.total

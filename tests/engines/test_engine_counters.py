"""Which engine a page of metrics is from."""

import pytest

from kvcanary.engines.counters import DIALECTS, SGLANG, VLLM, Dialect, dialect_of


@pytest.mark.parametrize(
    ("metrics", "dialect"),
    [
        ({"sglang:prompt_tokens_total", "process_start_time_seconds"}, SGLANG),
        ({"sglang:num_running_reqs"}, SGLANG),
        ({"vllm:generation_tokens_total"}, VLLM),
        ({"llamacpp:prompt_tokens_total"}, None),
        (set(), None),
        ({"sglang:num_running_reqs", "vllm:num_requests_running"}, None),
    ],
)
def test_the_engine_is_told_by_its_metrics(metrics: set[str], dialect: Dialect | None) -> None:
    assert dialect_of(metrics) is dialect


def test_no_two_engines_share_a_metric() -> None:
    assert SGLANG.metrics.isdisjoint(VLLM.metrics)
    assert len({dialect.engine for dialect in DIALECTS}) == len(DIALECTS)

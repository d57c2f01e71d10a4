"""What engines call the counters of their work on ``/metrics``, and which of them tell ranks apart.

Captured: SGLang 0.5.23, vLLM 0.32.0.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter: the sum of a metric's series, or of those whose label has one of some values."""

    metric: str
    label: str | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """The counters of one engine.

    Attributes:
        gauge: a metric that is there from the start, with a series for each rank.
        rank_label: tells DP ranks apart where a series has it.
        copy_labels: further ranks (tensor, pipeline) whose schedulers count the same work again.
        rank_prompt_tokens: counts prompt tokens by rank where `prompt_tokens` does not; generation
            likewise.
    """

    engine: str
    gauge: str
    rank_label: str
    prompt_tokens: Counted
    generation_tokens: Counted
    requests: Counted
    copy_labels: tuple[str, ...] = ()
    rank_prompt_tokens: Counted | None = None
    rank_generation_tokens: Counted | None = None

    @property
    def metrics(self) -> frozenset[str]:
        """The names of all that is read."""
        found = (
            self.prompt_tokens,
            self.generation_tokens,
            self.requests,
            self.rank_prompt_tokens,
            self.rank_generation_tokens,
        )
        return frozenset({self.gauge, *(counted.metric for counted in found if counted)})


_REALTIME = "sglang:realtime_tokens_total"
SGLANG = Dialect(
    engine="sglang",
    gauge="sglang:num_running_reqs",
    rank_label="dp_rank",
    # The tokenizer's, without a rank. The schedulers count by rank, when they log.
    prompt_tokens=Counted("sglang:prompt_tokens_total"),
    generation_tokens=Counted("sglang:generation_tokens_total"),
    requests=Counted("sglang:num_requests_total"),
    copy_labels=("pp_rank", "tp_rank"),
    rank_prompt_tokens=Counted(_REALTIME, "mode", ("prefill_compute", "prefill_cache")),
    rank_generation_tokens=Counted(_REALTIME, "mode", ("decode",)),
)
VLLM = Dialect(
    engine="vllm",
    gauge="vllm:num_requests_running",
    rank_label="engine",
    prompt_tokens=Counted("vllm:prompt_tokens_total"),
    generation_tokens=Counted("vllm:generation_tokens_total"),
    requests=Counted("vllm:request_success_total"),
)
DIALECTS = (SGLANG, VLLM)


def dialect_of(metrics: Collection[str]) -> Dialect | None:
    """The engine whose metrics are among these names; None for none and for several."""
    found = [dialect for dialect in DIALECTS if not dialect.metrics.isdisjoint(metrics)]
    return found[0] if len(found) == 1 else None

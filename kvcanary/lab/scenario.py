"""The deployments that the lab can be: sizes, times, and the one predicate that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kvcanary.errors import UsageError
from kvcanary.lab.free_list import FreeListPolicy
from kvcanary.lab.gate import Gate


@dataclass(frozen=True)
class WorkerShape:
    """One worker's KV pool: its size in tokens and how it reuses pages."""

    pool_tokens: int
    free_list: FreeListPolicy = FreeListPolicy.LIFO

    def scaled(self, numerator: int, denominator: int, page_tokens: int) -> WorkerShape:
        """The same with ``numerator / denominator`` of the pool, in whole pages."""
        pages = self.pool_tokens * numerator // (denominator * page_tokens)
        return replace(self, pool_tokens=max(1, pages) * page_tokens)


@dataclass(frozen=True)
class Scenario:
    """A deployment split into prefill and decode. Seconds are seconds of the lab's clock.

    ``wrong`` and ``check_says`` are for people. ``reserved_decode_tokens`` is the room for output
    that decode wants to see free, besides the prompt's, before it admits a request
    (SGLang's ``num_reserved_decode_tokens``).
    """

    name: str
    wrong: str
    check_says: str
    context_tokens: int
    prefill: WorkerShape
    decode: WorkerShape
    gate: Gate
    page_tokens: int = 64
    copy_error_rate: float = 0.005
    suffix_tokens: int = 8
    prefill_tokens_per_second: float = 1e6
    prefill_chunk_tokens: int = 16_384
    transfer_tokens_per_second: float = 5e7
    decode_step_seconds: float = 0.005
    reserved_decode_tokens: int = 512
    model_name: str = "glm-5.3-lab"
    engine_version: str = "0.5.23"
    models_show_length: bool = True

    def scaled(self, *, context_tokens: int) -> Scenario:
        """The same deployment with another context limit, and pools in proportion.

        For fast tests: a prompt of the whole context takes 0.1 s to compute, or what it takes at
        full speed if that is less; chunks shrink with the context.
        """
        ratio = (context_tokens, self.context_tokens)
        chunk = self.prefill_chunk_tokens * context_tokens // self.context_tokens
        return replace(
            self,
            context_tokens=context_tokens,
            prefill=self.prefill.scaled(*ratio, self.page_tokens),
            decode=self.decode.scaled(*ratio, self.page_tokens),
            prefill_chunk_tokens=max(self.page_tokens, chunk),
            prefill_tokens_per_second=min(self.prefill_tokens_per_second, context_tokens * 10.0),
            decode_step_seconds=min(self.decode_step_seconds, 0.001),
            reserved_decode_tokens=min(self.reserved_decode_tokens, context_tokens // 16),
        )


_CONTEXT: Final = 1_048_576
_AMPLE: Final = WorkerShape(2_043_904)
_SHORT: Final = WorkerShape(681_280)
_BLIND: Final = Gate(sees_pending_abort=False)

_HEALTHY: Final = Scenario(
    name="healthy",
    wrong="nothing: both pools hold the whole context (the gate is blind, but nothing is refused)",
    check_says="pass, exit 0",
    context_tokens=_CONTEXT,
    prefill=_AMPLE,
    decode=_AMPLE,
    gate=_BLIND,
)
_GLM_5_3: Final = Scenario(
    name="glm-5.3",
    wrong="prefill refuses from 681,274 tokens on, but the refusal is not terminal: one placeholder"
    " token is computed and sent, and decode attends over stale pages (S30233)",
    check_says="capacity, ownership and isolation fail, exit 1",
    context_tokens=_CONTEXT,
    prefill=_SHORT,
    decode=_AMPLE,
    gate=_BLIND,
)
_GLM_5_3_PATCHED: Final = replace(
    _GLM_5_3,
    name="glm-5.3-patched",
    wrong="the same pools with the gate right: prefill refuses cleanly, although the front door"
    " promises those lengths",
    check_says="capacity fails, no leak, exit 1",
    gate=Gate(sees_pending_abort=True),
)
_SCENARIOS: Final = {s.name: s for s in (_HEALTHY, _GLM_5_3, _GLM_5_3_PATCHED)}


def scenario_names() -> tuple[str, ...]:
    """Names that `scenario_named` knows."""
    return tuple(_SCENARIOS)


def scenarios() -> Iterable[Scenario]:
    """All scenarios."""
    return _SCENARIOS.values()


def scenario_named(name: str) -> Scenario:
    """The scenario of that name.

    Raises UsageError when there is none.
    """
    try:
        return _SCENARIOS[name]
    except KeyError:
        raise UsageError(
            f"there is no lab scenario {name!r}; there are: {', '.join(_SCENARIOS)}"
        ) from None

"""The deployments that the lab can be: sizes, times, and the one predicate that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from kvcanary.errors import UsageError
from kvcanary.lab.chances import ChosenFault
from kvcanary.lab.free_list import FreeListPolicy
from kvcanary.lab.gate import Gate
from kvcanary.lab.gateway import Gateway
from kvcanary.lab.lifecycle import Change
from kvcanary.lab.limits import Limits, VllmLimits
from kvcanary.lab.routing import Routing
from kvcanary.lab.speech import Speech


class Dialect(StrEnum):
    """Whose API the lab speaks, and how pages are handed over: SGLang's prefill pushes them into
    pages that decode reserved before; vLLM's decode pulls them once prefill has answered."""

    SGLANG = "sglang"
    VLLM = "vllm"


@dataclass(frozen=True)
class WorkerShape:
    """One worker's KV pools: their sizes in tokens and how they reuse pages.

    ``pool_tokens`` is DP rank 0's pool, ``more_ranks`` the pools of the others.
    """

    pool_tokens: int
    free_list: FreeListPolicy = FreeListPolicy.LIFO
    more_ranks: tuple[int, ...] = ()

    @property
    def rank_pool_tokens(self) -> tuple[int, ...]:
        """The pool of each DP rank."""
        return (self.pool_tokens, *self.more_ranks)

    def scaled(self, numerator: int, denominator: int, page_tokens: int) -> WorkerShape:
        """The same with ``numerator / denominator`` of each pool, in whole pages."""

        def scale(tokens: int) -> int:
            return max(1, tokens * numerator // (denominator * page_tokens)) * page_tokens

        return replace(
            self,
            pool_tokens=scale(self.pool_tokens),
            more_ranks=tuple(map(scale, self.more_ranks)),
        )


@dataclass(frozen=True)
class Fallback:
    """Another model, in a deployment of its own with ample pools, to which the router hands prompts
    of more than ``above_tokens``."""

    model_name: str
    above_tokens: int


@dataclass(frozen=True)
class Scenario:
    """A deployment split into prefill and decode. Seconds are seconds of the lab's clock.

    ``wrong`` and ``check_says`` are for people. ``prefill`` and ``decode`` are the first workers of
    their roles, ``more_prefill`` and ``more_decode`` the others; ``routing`` spreads requests over
    them. ``reserved_decode_tokens`` is the room for output
    that decode wants to see free, besides the prompt's, before it admits a request
    (SGLang's ``num_reserved_decode_tokens``). ``auto_truncate`` is SGLang's
    ``--allow-auto-truncate``: each worker cuts a prompt to what it can hold, instead of refusing.

    ``faults``: what is wrong besides. ``host_tier_tokens``: what each prefill rank's prefix cache may
    keep in host memory once it is evicted; 0: nothing. ``waiting_timeout_seconds``: requests that
    waited longer for their turn are given up. ``adapters``: served as ``MODEL:ADAPTER``.
    ``host_memory_tokens``: what a decode process may lose before the system kills it.

    ``output_cap_tokens``: no answer is longer, whatever was asked for. ``cold_start_seconds``: how
    much longer the first prompt takes. ``system_prompt_tokens``: words of a public system prompt
    that stands before every chat.

    ``prefill_context_tokens``: the context limit of the prefill workers where it is another one.
    ``parked_seconds``: how long prefill keeps pages that decode does not pull
    (vLLM's ``VLLM_NIXL_ABORT_REQUEST_TIMEOUT``).
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
    more_prefill: tuple[WorkerShape, ...] = ()
    more_decode: tuple[WorkerShape, ...] = ()
    routing: Routing = Routing.ROUND_ROBIN
    auto_truncate: bool = False
    dialect: Dialect = Dialect.SGLANG
    prefill_context_tokens: int | None = None
    parked_seconds: float = 480.0
    speech: Speech = field(default_factory=Speech)
    gateway: Gateway = field(default_factory=Gateway)
    fallback: Fallback | None = None
    changes: tuple[Change, ...] = ()
    faults: tuple[ChosenFault, ...] = ()
    host_tier_tokens: int = 0
    host_tokens_per_second: float = 1e7
    waiting_timeout_seconds: float | None = None
    adapters: tuple[str, ...] = ()
    host_memory_tokens: int | None = None
    output_cap_tokens: int | None = None
    cold_start_seconds: float = 0.0
    system_prompt_tokens: int = 0

    @property
    def prefill_shapes(self) -> tuple[WorkerShape, ...]:
        """All prefill workers."""
        return (self.prefill, *self.more_prefill)

    @property
    def decode_shapes(self) -> tuple[WorkerShape, ...]:
        """All decode workers."""
        return (self.decode, *self.more_decode)

    @property
    def pulls(self) -> bool:
        """Whether decode pulls pages that prefill has computed, instead of having them pushed."""
        return self.dialect is Dialect.VLLM

    def context_of(self, role: str) -> int:
        """The context limit of the workers of a role."""
        special = self.prefill_context_tokens if role == "prefill" else None
        return special or self.context_tokens

    def limits(self, role: str, pool_tokens: int) -> Limits:
        """The limits of a worker of that role with such a pool."""
        kind = VllmLimits if self.dialect is Dialect.VLLM else Limits
        return kind(self.context_of(role), pool_tokens)

    def speaking(self, dialect: Dialect) -> Scenario:
        """The same deployment with another engine.

        Raises UsageError where that engine does not start with such pools: vLLM wants to hold a
        request of its whole context.
        """
        if dialect is Dialect.VLLM:
            for role, shapes in (("prefill", self.prefill_shapes), ("decode", self.decode_shapes)):
                least = min(min(shape.rank_pool_tokens) for shape in shapes)
                if least < self.context_of(role):
                    raise UsageError(
                        f"vLLM does not start {self.name}: a {role} pool of {least:,} tokens is smaller "
                        f"than max_model_len ({self.context_of(role):,}); there is vllm-short-prefill"
                    )
        version = _VERSIONS[dialect] if dialect is not self.dialect else self.engine_version
        return replace(self, dialect=dialect, engine_version=version)

    def reshaped(self, change: Callable[[WorkerShape], WorkerShape]) -> Scenario:
        """The same deployment with each worker's shape changed."""
        return replace(
            self,
            prefill=change(self.prefill),
            decode=change(self.decode),
            more_prefill=tuple(map(change, self.more_prefill)),
            more_decode=tuple(map(change, self.more_decode)),
        )

    def fallen_back(self) -> Scenario | None:
        """The deployment of the fallback model, if there is one: healthy, without habits."""
        if self.fallback is None:
            return None
        pages = 2 * self.context_tokens // self.page_tokens
        return replace(
            _HEALTHY.scaled(context_tokens=self.context_tokens),
            name=f"{self.name}-fallback",
            prefill=WorkerShape(pages * self.page_tokens),
            decode=WorkerShape(pages * self.page_tokens),
            model_name=self.fallback.model_name,
        )

    def with_free_list(self, policy: FreeListPolicy) -> Scenario:
        """The same deployment with every pool reusing pages by ``policy``."""
        return self.reshaped(lambda shape: replace(shape, free_list=policy))

    def scaled(self, *, context_tokens: int) -> Scenario:
        """The same deployment with another context limit, and pools in proportion.

        For fast tests: a prompt of the whole context takes 0.1 s to compute, or what it takes at
        full speed if that is less; chunks shrink with the context.
        """

        def scale(shape: WorkerShape) -> WorkerShape:
            return shape.scaled(context_tokens, self.context_tokens, self.page_tokens)

        special = self.prefill_context_tokens
        chunk = self.prefill_chunk_tokens * context_tokens // self.context_tokens
        return replace(
            self.reshaped(scale),
            context_tokens=context_tokens,
            prefill_context_tokens=special and special * context_tokens // self.context_tokens,
            prefill_chunk_tokens=max(self.page_tokens, chunk),
            prefill_tokens_per_second=min(self.prefill_tokens_per_second, context_tokens * 10.0),
            decode_step_seconds=min(self.decode_step_seconds, 0.001),
            reserved_decode_tokens=min(self.reserved_decode_tokens, context_tokens // 16),
        )


_VERSIONS: Final = {Dialect.SGLANG: "0.5.23", Dialect.VLLM: "0.32.0"}
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
_TWO_BY_TWO: Final = replace(
    _HEALTHY,
    name="2x2",
    wrong="nothing: two prefill and two decode workers, round robin over their four pairs",
    check_says="pass, exit 0, with four pairs in the meeting matrix",
    more_prefill=(_AMPLE,),
    more_decode=(_AMPLE,),
)
_ONE_SHORT: Final = replace(
    _TWO_BY_TWO,
    name="2x2-one-short",
    wrong="P2, one of two prefill workers, has the pool and the blind gate of glm-5.3: every other"
    " long request leaks",
    check_says="capacity, ownership and isolation fail for pairs with P2 only, exit 1",
    more_prefill=(_SHORT,),
)
_RANKS: Final = replace(
    _HEALTHY,
    name="dp4",
    wrong="nothing: decode has four DP ranks with a pool each, which requests meet in turn",
    check_says="pass, exit 0, with four ranks in the meeting matrix",
    decode=replace(_AMPLE, more_ranks=(_AMPLE.pool_tokens,) * 3),
)
_VLLM_SHORT_PREFILL: Final = replace(
    _HEALTHY.speaking(Dialect.VLLM),
    name="vllm-short-prefill",
    wrong="vLLM: prefill was started with another max_model_len (681,280) than decode: it refuses"
    " cleanly, although the deployment promises those lengths",
    check_says="capacity fails, no leak, exit 1",
    prefill_context_tokens=_SHORT.pool_tokens,
)
_SCENARIOS: Final = {
    s.name: s
    for s in (
        _HEALTHY,
        _GLM_5_3,
        _GLM_5_3_PATCHED,
        _TWO_BY_TWO,
        _ONE_SHORT,
        _RANKS,
        _VLLM_SHORT_PREFILL,
    )
}


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

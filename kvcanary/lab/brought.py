"""What faults bring along: features that deployments can have and that are sound without the fault,
or pools of another size."""

from __future__ import annotations

from dataclasses import replace

from kvcanary.lab.gate import Gate
from kvcanary.lab.scenario import Scenario


def _share(scenario: Scenario, numerator: int, denominator: int) -> int:
    """So much of the context, in whole pages."""
    pages = scenario.context_tokens * numerator // (denominator * scenario.page_tokens)
    return max(1, pages) * scenario.page_tokens


def short_prefill(scenario: Scenario) -> Scenario:
    """Prefill pools of 0.65 contexts, as in glm-5.3, behind a door that sees refusals."""
    pool = _share(scenario, 65, 100)
    workers = (scenario.prefill, *scenario.more_prefill)
    short = [replace(shape, pool_tokens=min(pool, shape.pool_tokens)) for shape in workers]
    return replace(
        scenario,
        gate=Gate(sees_pending_abort=True),
        prefill=short[0],
        more_prefill=tuple(short[1:]),
    )


def time_out(scenario: Scenario) -> Scenario:
    """Requests are given up that wait for longer than ten prompts of the whole context take."""
    seconds = 10 * scenario.context_tokens / scenario.prefill_tokens_per_second
    return replace(scenario, waiting_timeout_seconds=seconds)


def short_decode(scenario: Scenario) -> Scenario:
    """Decode pools of 0.65 contexts."""
    pool = _share(scenario, 65, 100)
    workers = (scenario.decode, *scenario.more_decode)
    short = [replace(shape, pool_tokens=min(pool, shape.pool_tokens)) for shape in workers]
    return replace(scenario, decode=short[0], more_decode=tuple(short[1:]))


def eager_decode(scenario: Scenario) -> Scenario:
    """Decode pools of one context and a quarter that keep no room for output."""
    pool = _share(scenario, 5, 4)
    shape = replace(scenario.decode, pool_tokens=min(pool, scenario.decode.pool_tokens))
    return replace(scenario, decode=shape, reserved_decode_tokens=0)


def host_tier(scenario: Scenario) -> Scenario:
    """A host tier of four contexts behind the prefix cache, loaded at twice prefill's speed."""
    speed = 2 * scenario.prefill_tokens_per_second
    return replace(
        scenario, host_tier_tokens=4 * scenario.context_tokens, host_tokens_per_second=speed
    )


def slow_transfer(scenario: Scenario) -> Scenario:
    """A transfer of half prefill's speed, so that it is still on its way while others come."""
    return replace(scenario, transfer_tokens_per_second=scenario.prefill_tokens_per_second / 2)


def ranks(scenario: Scenario) -> Scenario:
    """Decode in four DP ranks, unless it has several already."""
    shape = scenario.decode
    if not shape.more_ranks:
        shape = replace(shape, more_ranks=(shape.pool_tokens,) * 3)
    return replace(scenario, decode=shape)


def adapters(scenario: Scenario) -> Scenario:
    """Two adapters, served as ``MODEL:lora-a`` and ``MODEL:lora-b``."""
    return replace(scenario, adapters=("lora-a", "lora-b"))


def host_memory(scenario: Scenario) -> Scenario:
    """A decode process that the system kills at 64 contexts' worth of lost host memory."""
    return replace(scenario, host_memory_tokens=64 * scenario.context_tokens)


def response_cache(scenario: Scenario) -> Scenario:
    return replace(scenario, gateway=replace(scenario.gateway, response_cache=True))


def half(scenario: Scenario) -> int:
    """Half the context."""
    return _share(scenario, 1, 2)


def quarter(scenario: Scenario) -> int:
    """A quarter of it."""
    return _share(scenario, 1, 4)

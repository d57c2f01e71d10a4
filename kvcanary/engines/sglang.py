"""SGLang: what ``/server_info`` and ``/v1/loads`` say. Measured on 0.5.23; tolerant of what is missing.

``/server_info`` returns keys in clear, so nothing of it is kept but the numbers read here.
"""

from collections.abc import Mapping, Sequence

from kvcanary.deployment.facts import Role, Worker

SHORTFALL = 6
"""``max_req_input_len = min(context - 1, pool - 1) - 5``: the pool is that plus six where the pool is the
smaller one."""


def worker(url: str, info: object, role: Role | None = None) -> Worker | None:
    """A worker from its ``/server_info``; None when the document is not SGLang's."""
    if not isinstance(info, Mapping):
        return None
    total, most = _number(info.get("max_total_num_tokens")), _number(info.get("max_req_input_len"))
    if total is None and most is None:
        return None
    context = _number(info.get("context_length"))
    pools = [total, *_rank_pools(info.get("internal_states"))]
    if most is not None and context is not None and most + SHORTFALL < context:
        pools.append(most + SHORTFALL)
    return Worker(
        role=role or _role(info.get("disaggregation_mode")),
        url=url,
        engine="sglang",
        version=_version(info.get("version")),
        pool_tokens=min((p for p in pools if p is not None), default=None),
        limit_tokens=most - 1 if most else None,
        context_tokens=context,
        page_tokens=_number(info.get("page_size")),
        source="/server_info",
    )


def used_tokens(loads: object) -> int | None:
    """Tokens in use on a worker with one rank, from ``/v1/loads``."""
    ranks = loads.get("loads") if isinstance(loads, Mapping) else None
    if not isinstance(ranks, Sequence) or len(ranks) != 1 or not isinstance(ranks[0], Mapping):
        return None
    return _number(ranks[0].get("num_used_tokens"))


def _rank_pools(states: object) -> list[int | None]:
    """``max_total_num_tokens`` is DP rank 0's only; each rank tells its own capacity."""
    if not isinstance(states, Sequence) or isinstance(states, str):
        return []
    memories = [s.get("memory_usage") for s in states if isinstance(s, Mapping)]
    return [_number(m.get("token_capacity")) for m in memories if isinstance(m, Mapping)]


def _role(mode: object) -> Role:
    return Role(mode) if mode in (Role.PREFILL.value, Role.DECODE.value) else Role.UNIFIED


def _number(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 1 << 53 else None  # type: ignore[operator,return-value]


def _version(value: object) -> str | None:
    """A version of the usual shape; anything else is server text and is not kept."""
    import re

    match = isinstance(value, str) and re.fullmatch(
        r"[0-9]+(\.[0-9]+){1,3}([a-z.+-]{0,6}[0-9]+)?", value
    )
    return match[0] if match else None

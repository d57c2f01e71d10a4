"""LMDeploy: ``/metrics`` for its use, ``/distserve/engine_info`` for its blocks.

Read in its source: the engine info is JSON inside a JSON string, and speaks of one DP rank.
"""

import json
from collections.abc import Mapping

from kvcanary.deployment.facts import Parallelism, Rank, Role, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import (
    MAX_ENTRIES,
    Documents,
    Want,
    fields,
    name,
    number,
    positive,
    started_at,
)
from kvcanary.engines.engine import Engine
from kvcanary.engines.figures import Figures

NAME = "lmdeploy"
INFO = Want("/distserve/engine_info")
PAGE = Want("/metrics", metrics=True)

_USAGE = "lmdeploy:gpu_cache_usage_perc"
_RUNNING = "lmdeploy:num_requests_running"
_METRICS = frozenset({_USAGE, _RUNNING})
OWNER = "lmdeploy"


def _speaks(documents: Documents) -> bool:
    """Whether the documents are LMDeploy's."""
    page = documents.page(PAGE)
    return any(page.named(m) for m in _METRICS) or OWNER in openai.owners(documents)


def _arguments(documents: Documents) -> Mapping[str, object] | None:
    """Parallelism and blocks of the engine."""
    return _info(documents) or None


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents."""
    figures, info, page = Figures(), _info(documents), documents.page(PAGE)
    blocks = positive(info.get("num_gpu_blocks"))
    size = figures.first(
        "page_tokens", (positive(info.get("block_size")), "/distserve/engine_info block_size")
    )
    ways, rank = positive(info.get("dp_size")) or 1, number(info.get("dp_rank")) or 0
    one = blocks * size if blocks and size else None
    pool = figures.first(
        "pool_tokens",
        (one if ways == 1 else None, "/distserve/engine_info num_gpu_blocks x block_size"),
        remedy="use the PyTorch engine, whose /distserve/engine_info tells num_gpu_blocks; of several DP "
        "ranks it tells one",
    )
    usage = [sample.value for sample in page.named(_USAGE)]
    alone = len(usage) == 1 and 0 <= usage[0] <= 1
    context = figures.first(
        "context_tokens",
        (openai.context_of(documents), "/v1/models max_model_len"),
        remedy="it is told nowhere: give --context (what --session-len was set to)",
    )
    figures.unknown("limit_tokens", "told by a refusal only")
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        model=name(openai.first_name(documents)),
        ranks=(Rank(rank=rank, pool_tokens=one),) if one and rank < MAX_ENTRIES else (),
        pool_tokens=pool,
        context_tokens=context,
        page_tokens=size,
        used_tokens=figures.first(
            "used_tokens", (round(usage[0] * pool) if pool and alone else None, _USAGE)
        ),
        parallelism=Parallelism(
            tensor=positive(info.get("tp_size")),
            pipeline=positive(info.get("pp_size")),
            data=ways if ways <= MAX_ENTRIES else None,
        ),
        started_at=started_at(page),
        told=figures.told,
        untold=figures.untold,
        source="/metrics",
    )


def _info(documents: Documents) -> Mapping[str, object]:
    value = documents.value(INFO)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return fields(value)


ENGINE = Engine(
    name=NAME,
    wants=(PAGE, INFO),
    speaks=_speaks,
    worker=_worker,
    owner=OWNER,
    use=(PAGE, INFO),
    metrics=_METRICS,
    arguments=_arguments,
)

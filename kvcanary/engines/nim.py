"""NVIDIA NIM: metrics without a prefix. They tell how full the pool is, not how large."""

from kvcanary.deployment.facts import Role, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import Documents, Want, name, started_at
from kvcanary.engines.engine import Engine
from kvcanary.engines.figures import Figures

NAME = "nim"
PAGE = Want("/metrics", metrics=True)
OTHER_PAGE = Want("/v1/metrics", metrics=True)

_METRICS = frozenset({"gpu_cache_usage_perc"})


def _speaks(documents: Documents) -> bool:
    """Whether the documents are NIM's."""
    return any(
        documents.page(want).named(metric) for want in (PAGE, OTHER_PAGE) for metric in _METRICS
    )


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents."""
    figures = Figures()
    figures.unknown(
        "pool_tokens", "NIM tells a share (gpu_cache_usage_perc) and no size: read it in its log"
    )
    figures.unknown("limit_tokens", "told by a refusal only")
    context = figures.first(
        "context_tokens",
        (openai.context_of(documents), "/v1/models max_model_len"),
        remedy="give --context (what NIM_MAX_MODEL_LEN was set to)",
    )
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        model=name(openai.first_name(documents)),
        context_tokens=context,
        started_at=started_at(documents.page(PAGE)) or started_at(documents.page(OTHER_PAGE)),
        told=figures.told,
        untold=figures.untold,
        source="/metrics",
    )


ENGINE = Engine(
    name=NAME,
    wants=(PAGE,),
    speaks=_speaks,
    worker=_worker,
    metrics=_METRICS,
)

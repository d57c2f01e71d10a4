"""NVIDIA NIM: metrics without a prefix. They tell how full the pool is, not how large."""

from collections.abc import Mapping

from kvcanary.deployment.facts import Role, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import Documents, Want, name, started_at
from kvcanary.engines.figures import Figures

NAME = "nim"
PAGE = Want("/metrics", metrics=True)
OTHER_PAGE = Want("/v1/metrics", metrics=True)
WANTS = (PAGE,)
USE: tuple[Want, ...] = ()

METRICS = frozenset({"gpu_cache_usage_perc"})


def speaks(documents: Documents) -> bool:
    """Whether the documents are NIM's."""
    return any(
        documents.page(want).named(metric) for want in (PAGE, OTHER_PAGE) for metric in METRICS
    )


def further(documents: Documents) -> tuple[Want, ...]:
    """Nothing has another name."""
    return ()


def arguments(documents: Documents) -> Mapping[str, object] | None:
    """It tells none."""
    return None


def worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
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
        started_at=started_at(documents.page(PAGE)),
        told=figures.told,
        untold=figures.untold,
        source="/metrics",
    )

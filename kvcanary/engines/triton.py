"""Triton with the TensorRT-LLM backend: the block metrics on its metrics port (8002 by default)."""

from kvcanary.deployment.facts import Role, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import Documents, Want, started_at, whole
from kvcanary.engines.engine import Engine
from kvcanary.engines.exposition import Exposition
from kvcanary.engines.figures import Figures

NAME = "triton"
PAGE = Want("/metrics", metrics=True)

_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_METRICS = frozenset({_BLOCKS})


def _speaks(documents: Documents) -> bool:
    """Whether the documents are Triton's."""
    return bool(documents.page(PAGE).named(_BLOCKS))


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents. With several models the smallest pool; use is told of one only."""
    figures, page = Figures(), documents.page(PAGE)
    size, blocks = _one(page, "tokens_per"), _one(page, "max")
    used = [whole(sample) for sample in page.named(_BLOCKS, kv_cache_block_type="used")]
    use = used[0] * size if len(used) == 1 and used[0] is not None and size else None
    pool = figures.first(
        "pool_tokens",
        (blocks * size if blocks and size else None, f"{_BLOCKS} max x tokens_per"),
        remedy="let the metrics port be read (--metrics-port, 8002 by default)",
    )
    context = figures.first(
        "context_tokens",
        (openai.context_of(documents), "/v1/models max_model_len"),
        remedy="it is told nowhere: give --context (what max_seq_len was built with)",
    )
    figures.unknown("limit_tokens", "told by a refusal only")
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        pool_tokens=pool,
        context_tokens=context,
        page_tokens=figures.first("page_tokens", (size, f"{_BLOCKS} tokens_per")),
        used_tokens=figures.first("used_tokens", (use, f"{_BLOCKS} used x tokens_per")),
        started_at=started_at(page),
        told=figures.told,
        untold=figures.untold,
        source="/metrics",
    )


def _one(page: Exposition, kind: str) -> int | None:
    values = [whole(sample) for sample in page.named(_BLOCKS, kv_cache_block_type=kind)]
    known = [value for value in values if value]
    return min(known) if known and len(known) == len(values) else None


ENGINE = Engine(
    name=NAME,
    wants=(PAGE,),
    speaks=_speaks,
    worker=_worker,
    use=(PAGE,),
    metrics=_METRICS,
)

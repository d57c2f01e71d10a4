"""TensorRT-LLM's own server: ``/prometheus/metrics``.

``/metrics`` is a list that empties a queue when it is read, so a consumer beside us would miss what we take:
it is never asked for.
"""

from kvcanary.deployment.facts import Role, Switch, SwitchName, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import Documents, Want, least, name, started_at, version, whole
from kvcanary.engines.engine import Engine
from kvcanary.engines.exposition import Exposition
from kvcanary.engines.figures import Figures

NAME = "tensorrt-llm"
OWNER = "tensorrt_llm"
"""Who its models are owned by in ``/v1/models``: the sign not to touch ``/metrics``."""
OWN_PAGE = Want("/prometheus/metrics", metrics=True)
PAGE = Want("/metrics", metrics=True)
"""A Dynamo worker or a file may have the same metrics there; `OWNER` is not asked for it."""
VERSION = Want("/version")

_BLOCKS = "trtllm_kv_cache_max_blocks"
_USED = "trtllm_kv_cache_used_blocks"
_PAGE = "trtllm_kv_cache_tokens_per_block"
_POOL_BY = (
    f"{_BLOCKS} x {_PAGE}: rank 0's under attention DP, and with the host's blocks where the legacy "
    "cache manager offloads to it"
)
_METRICS = frozenset({_BLOCKS, _USED, _PAGE})


def _speaks(documents: Documents) -> bool:
    """Whether the documents are TensorRT-LLM's."""
    known = any(_page(documents).named(metric) for metric in _METRICS)
    return known or OWNER in openai.owners(documents)


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents."""
    figures, page = Figures(), _page(documents)
    size = figures.first("page_tokens", (least(page, _PAGE), _PAGE))
    blocks = least(page, _BLOCKS)
    pool = figures.first(
        "pool_tokens",
        (
            blocks * size if blocks and size else None,
            _POOL_BY,
        ),
        remedy="set return_perf_metrics: true, so that /prometheus/metrics is served",
    )
    used = [whole(sample) for sample in page.named(_USED)]
    use = used[0] * size if len(used) == 1 and used[0] is not None and size else None
    context = figures.first(
        "context_tokens",
        (openai.context_of(documents), "/v1/models max_model_len"),
        remedy="it is told nowhere: give --context (what --max_seq_len was set to)",
    )
    figures.unknown(
        "limit_tokens",
        "told by a refusal only: --max_num_tokens caps prompts without chunked prefill",
    )
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        version=version(documents.fields(VERSION).get("version")),
        model=name(openai.first_name(documents)),
        pool_tokens=pool,
        context_tokens=context,
        page_tokens=size,
        used_tokens=figures.first("used_tokens", (use, f"{_USED} x {_PAGE}")),
        # over the limit: 400 with a flat body
        switches=(Switch(name=SwitchName.NO_AUTO_TRUNCATE, on=True, flag=""),),
        started_at=started_at(page),
        told=figures.told,
        untold=figures.untold,
        source="/prometheus/metrics",
    )


def _page(documents: Documents) -> Exposition:
    own = documents.page(OWN_PAGE)
    return own if own.samples else documents.page(PAGE)


ENGINE = Engine(
    name=NAME,
    wants=(OWN_PAGE, VERSION),
    speaks=_speaks,
    worker=_worker,
    owner=OWNER,
    use=(OWN_PAGE,),
    metrics=_METRICS,
)

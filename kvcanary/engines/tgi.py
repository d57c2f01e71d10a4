"""Text Generation Inference: ``/info``, and the batch's budget on ``/metrics``.

Over-long prompts get 422.
"""

from collections.abc import Mapping

from kvcanary.deployment.facts import Role, Switch, SwitchName, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import (
    Documents,
    Want,
    least,
    name,
    positive,
    started_at,
    version,
)
from kvcanary.engines.engine import Engine
from kvcanary.engines.figures import Figures

NAME = "tgi"
INFO = Want("/info")
PAGE = Want("/metrics", metrics=True)

_BATCH = "tgi_batch_max_total_tokens"
_METRICS = frozenset({_BATCH})
_NOT_ARGUMENTS = frozenset({"version", "sha", "docker_label"})


def _speaks(documents: Documents) -> bool:
    """Whether the documents are TGI's: no other engine's ``/info`` limits a request so."""
    info = documents.fields(INFO)
    return positive(info.get("max_total_tokens")) is not None and _most(info) is not None


def _arguments(documents: Documents) -> Mapping[str, object] | None:
    """``/info`` without the build."""
    info = documents.fields(INFO)
    return {k: v for k, v in info.items() if k not in _NOT_ARGUMENTS} or None


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents."""
    figures, info, page = Figures(), documents.fields(INFO), documents.page(PAGE)
    pool = figures.first(
        "pool_tokens",
        (positive(info.get("max_batch_total_tokens")), "/info max_batch_total_tokens"),
        (least(page, _BATCH), _BATCH),
        remedy=f"let /metrics be read ({_BATCH}), or set --max-batch-total-tokens and look there",
    )
    figures.unknown("used_tokens", "no document of TGI tells it")
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        version=version(info.get("version")),
        model=name(openai.first_name(documents)) or name(info.get("model_id")),
        pool_tokens=pool,
        limit_tokens=figures.first("limit_tokens", (_most(info), "/info max_input_tokens")),
        context_tokens=figures.first(
            "context_tokens", (positive(info.get("max_total_tokens")), "/info max_total_tokens")
        ),
        switches=(Switch(name=SwitchName.NO_AUTO_TRUNCATE, on=True, flag=""),),
        started_at=started_at(page),
        told=figures.told,
        untold=figures.untold,
        source="/info",
    )


def _most(info: Mapping[str, object]) -> int | None:
    """Its name changed: ``max_input_length`` before 2.1."""
    return positive(info.get("max_input_tokens")) or positive(info.get("max_input_length"))


ENGINE = Engine(
    name=NAME,
    wants=(INFO, PAGE),
    speaks=_speaks,
    worker=_worker,
    metrics=_METRICS,
    arguments=_arguments,
)

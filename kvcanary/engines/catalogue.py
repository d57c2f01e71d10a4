"""Every engine that kvcanary knows: which one a server is, told by what it answers, never by a name.

Pure: `wanted` says what to ask for next, and `described` makes the worker of what came back.
"""

from collections.abc import Collection

from kvcanary.deployment.facts import Role, Worker
from kvcanary.engines import (
    llamacpp,
    lmdeploy,
    nim,
    ollama,
    openai,
    sglang,
    tgi,
    triton,
    trtllm,
    vllm,
)
from kvcanary.engines.documents import STARTED, Documents, Want
from kvcanary.engines.engine import Engine
from kvcanary.engines.figures import Figures

UNKNOWN = "unknown"
REMEDY = "let /server_info, /props, /info or /metrics of the worker be read from here, or give its metrics URL"


ENGINES: tuple[Engine, ...] = (
    sglang.ENGINE,
    vllm.ENGINE,
    llamacpp.ENGINE,
    trtllm.ENGINE,
    lmdeploy.ENGINE,
    tgi.ENGINE,
    ollama.ENGINE,
    triton.ENGINE,
    nim.ENGINE,
)
METRICS = frozenset({STARTED}).union(*(engine.metrics for engine in ENGINES))
"""All that is read from metrics; other lines are passed over."""

FIRST = openai.MODELS
"""Asked first and alone: a server that does not answer it in time is asked nothing more."""
SIGNS = (sglang.INFO, llamacpp.PROPS, tgi.INFO, ollama.RUNNING, trtllm.OWN_PAGE)
"""Documents by which engines are told apart."""
LATER_SIGNS = (sglang.OLD_INFO, vllm.PAGE, nim.OTHER_PAGE)
"""Asked for when the first said nothing."""


def engine_of(documents: Documents) -> Engine | None:
    """The engine that the documents are of; None for none and for several."""
    found = [engine for engine in ENGINES if engine.speaks(documents)]
    return found[0] if len(found) == 1 else None


def named(name: str) -> Engine | None:
    """The engine that a record calls so."""
    return next((engine for engine in ENGINES if name == engine.name), None)


def wanted(documents: Documents, asked: Collection[str]) -> tuple[Want, ...]:
    """What to ask a server for next, all at once; nothing when no more is to be had.

    Args:
        asked: paths that it was asked for already, with or without success.
    """
    engine = engine_of(documents)
    if engine:
        stages: tuple[tuple[Want, ...], ...] = (engine.wants, engine.older(documents))
    else:
        owners = openai.owners(documents)
        stages = (*(e.wants for e in ENGINES if e.owner in owners), SIGNS, LATER_SIGNS)
    for stage in stages:
        if left := tuple(want for want in stage if want.path not in asked):
            return left
    return ()


def described(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """The worker that the documents are of; of an unknown engine, with what ``/v1/models`` tells."""
    engine = engine_of(documents)
    if engine is not None:
        return engine.worker(url, documents, role)
    figures = Figures()
    context = figures.first(
        "context_tokens", (openai.context_of(documents), "/v1/models max_model_len"), remedy=REMEDY
    )
    figures.unknown("pool_tokens", REMEDY)
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=UNKNOWN,
        model=openai.first_name(documents),
        context_tokens=context,
        told=figures.told,
        untold=figures.untold,
        source="/v1/models" if context else "",
    )

"""Every engine that kvcanary knows: which one a server is, told by what it answers, never by a name.

Pure: `wanted` says what to ask for next, and `described` makes the worker of what came back.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

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
from kvcanary.engines.figures import Figures

UNKNOWN = "unknown"
REMEDY = (
    "let /server_info, /props, /info or /metrics of the worker be read from here, or give its metrics URL"
)


class Engine(Protocol):
    """One engine's dialect: a module of this package.

    Attributes:
        NAME: as records and reports call it.
        WANTS: the documents that its figures stand in.
        USE: those that tell how much of the pool is in use now; none where it is told nowhere.
        METRICS: the names that are read from its metrics.
    """

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a module's constant
    @property
    def WANTS(self) -> tuple[Want, ...]: ...  # noqa: N802
    @property
    def USE(self) -> tuple[Want, ...]: ...  # noqa: N802
    @property
    def METRICS(self) -> frozenset[str]: ...  # noqa: N802

    def speaks(self, documents: Documents) -> bool:
        """Whether the documents are this engine's."""
        ...

    def further(self, documents: Documents) -> tuple[Want, ...]:
        """What to ask for in place of documents that did not come: older names."""
        ...

    def worker(self, url: str, documents: Documents, role: Role | None = None) -> Worker:
        """The worker, as far as its documents tell. Never raises, whatever they hold."""
        ...

    def arguments(self, documents: Documents) -> Mapping[str, object] | None:
        """What it was started with, as far as it tells; secrets included."""
        ...


ENGINES: tuple[Engine, ...] = (
    sglang,
    vllm,
    llamacpp,
    trtllm,
    lmdeploy,
    tgi,
    ollama,
    triton,
    nim,
)
METRICS = frozenset({STARTED}).union(*(engine.METRICS for engine in ENGINES))
"""All that is read from metrics; other lines are passed over."""

FIRST = openai.MODELS
"""Asked first and alone: a server that does not answer it in time is asked nothing more."""
SIGNS = (sglang.INFO, llamacpp.PROPS, tgi.INFO, ollama.RUNNING, trtllm.OWN_PAGE)
"""Documents by which engines are told apart."""
LATER_SIGNS = (sglang.OLD_INFO, vllm.PAGE)
"""Asked for when the first said nothing."""


def engine_of(documents: Documents) -> Engine | None:
    """The engine that the documents are of; None for none and for several."""
    found = [engine for engine in ENGINES if engine.speaks(documents)]
    return found[0] if len(found) == 1 else None


def named(name: str) -> Engine | None:
    """The engine that a record calls so."""
    return next((engine for engine in ENGINES if engine.NAME == name), None)


def wanted(documents: Documents, asked: Collection[str]) -> tuple[Want, ...]:
    """What to ask a server for next, all at once; nothing when no more is to be had.

    Args:
        asked: paths that it was asked for already, with or without success.
    """
    engine = engine_of(documents)
    stages: tuple[tuple[Want, ...], ...]
    if engine is None:
        stages = (SIGNS, LATER_SIGNS)
    else:
        stages = (engine.WANTS, engine.further(documents))
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

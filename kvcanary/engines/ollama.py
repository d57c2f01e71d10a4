"""Ollama: ``/api/ps``. It drops a chat's oldest messages without a word when they do not fit."""

from kvcanary.deployment.facts import Role, Switch, SwitchName, Worker
from kvcanary.engines.documents import Documents, Want, entries, fields, name, positive, version
from kvcanary.engines.engine import Engine
from kvcanary.engines.figures import Figures

NAME = "ollama"
RUNNING = Want("/api/ps")
VERSION = Want("/api/version")


def _speaks(documents: Documents) -> bool:
    """Whether the documents are Ollama's: a list of loaded models, also an empty one."""
    loaded = documents.fields(RUNNING).get("models")
    return isinstance(loaded, list) and all("digest" in fields(model) for model in loaded)


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents: the smallest context of its loaded models."""
    figures = Figures()
    loaded = [fields(model) for model in entries(documents.fields(RUNNING).get("models"))]
    contexts = [positive(model.get("context_length")) for model in loaded]
    known = [n for n in contexts if n is not None]
    context = figures.first(
        "context_tokens",
        (
            min(known) if known and len(known) == len(contexts) else None,
            "/api/ps context_length, the smallest of the loaded models",
        ),
        remedy="load the model first (any request does), so that /api/ps lists it",
    )
    figures.unknown(
        "pool_tokens", "no document of Ollama tells it; it is made for the context of each sequence"
    )
    figures.unknown("limit_tokens", "Ollama refuses no length: it cuts")
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        version=version(documents.fields(VERSION).get("version")),
        model=name(loaded[0].get("name")) if len(loaded) == 1 else None,
        context_tokens=context,
        switches=(
            Switch(
                name=SwitchName.NO_AUTO_TRUNCATE,
                on=False,
                flag="it cannot be switched off in chats: set OLLAMA_CONTEXT_LENGTH to what is promised",
            ),
        ),
        told=figures.told,
        untold=figures.untold,
        source="/api/ps",
    )


ENGINE = Engine(
    name=NAME,
    wants=(RUNNING, VERSION),
    speaks=_speaks,
    worker=_worker,
    owner="library",
)

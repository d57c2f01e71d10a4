"""llama.cpp's server: ``/props`` and ``/slots``. Measured on 11434.0.0.

Each slot advertises a context. Whether the slots divide one pool (``-np`` given) or share one that is no
larger than that (the default, ``--kv-unified``) is told nowhere, so what may be shared counts as shared.
"""

import re
from collections.abc import Mapping

from kvcanary.deployment.facts import Role, Switch, SwitchName, Worker
from kvcanary.engines import openai
from kvcanary.engines.documents import (
    MAX_ENTRIES,
    Documents,
    Want,
    entries,
    fields,
    name,
    positive,
)
from kvcanary.engines.engine import Engine
from kvcanary.engines.figures import Figures

NAME = "llama.cpp"
PROPS = Want("/props")
SLOTS = Want("/slots")

_NOT_ARGUMENTS = frozenset({"is_sleeping", "build_info", "media_marker", "chat_template"})


def _speaks(documents: Documents) -> bool:
    """Whether the documents are llama.cpp's."""
    return _slot_context(documents) is not None and "total_slots" in documents.fields(PROPS)


def _arguments(documents: Documents) -> Mapping[str, object] | None:
    """What ``/props`` tells of how the server was started."""
    props = documents.fields(PROPS)
    return {k: v for k, v in props.items() if k not in _NOT_ARGUMENTS} or None


def _worker(url: str, documents: Documents, role: Role | None = None) -> Worker:
    """A worker from its documents."""
    figures = Figures()
    context = figures.first(
        "context_tokens",
        (_slot_context(documents), "/props n_ctx, the smallest slot's"),
        remedy="let /props be read",
    )
    pool = figures.first(
        "pool_tokens", (context, "/props n_ctx: what one slot is sure of while it is alone")
    )
    slots = positive(documents.fields(PROPS).get("total_slots"))
    shared = slots if slots is not None and 1 < slots <= MAX_ENTRIES else None
    figures.first(
        "slots",
        (shared, "/props total_slots; the server does not say whether they divide the pool"),
    )
    figures.unknown("used_tokens", "no document of llama.cpp tells it")
    return Worker(
        role=role or Role.UNIFIED,
        url=url,
        engine=NAME,
        version=_build(documents.fields(PROPS).get("build_info")),
        model=name(openai.first_name(documents)),
        pool_tokens=pool,
        slots=shared,
        limit_tokens=figures.first(
            "limit_tokens", (context - 1 if context else None, "/props n_ctx, less one")
        ),
        context_tokens=context,
        # over the context: 400 exceed_context_size_error
        switches=(Switch(name=SwitchName.NO_AUTO_TRUNCATE, on=True, flag=""),),
        told=figures.told,
        untold=figures.untold,
        source="/props",
    )


def _slot_context(documents: Documents) -> int | None:
    settings = fields(documents.fields(PROPS).get("default_generation_settings"))
    slots = (positive(fields(slot).get("n_ctx")) for slot in entries(documents.value(SLOTS)))
    known = [n for n in (positive(settings.get("n_ctx")), *slots) if n is not None]
    return min(known) if positive(settings.get("n_ctx")) else None


def _build(value: object) -> str | None:
    """``b11434-0123abc``: the number of the build."""
    match = re.match(r"b[0-9]{1,9}(?=-|$)", value) if isinstance(value, str) else None
    return match[0] if match else None


ENGINE = Engine(
    name=NAME,
    wants=(PROPS, SLOTS),
    speaks=_speaks,
    worker=_worker,
    owner="llamacpp",
    arguments=_arguments,
)

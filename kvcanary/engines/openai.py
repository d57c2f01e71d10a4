"""What every OpenAI-compatible front door tells: ``/v1/models``."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary.engines.documents import Documents, Want, entries, fields, name, positive

MODELS = Want("/v1/models")


@dataclass(frozen=True, slots=True)
class Model:
    """A served model; ``context_tokens`` only where the server says it (``max_model_len``)."""

    name: str
    context_tokens: int | None
    root: str | None = None
    """What it is made of: two names of one model have one root, an adapter has its own."""
    parent: str | None = None
    """The model that it is an adapter of."""


def models(document: object) -> tuple[Model, ...]:
    """The served models, LoRA cards and others without a length included."""
    cards = map(fields, entries(fields(document).get("data")))
    named = ((name(card.get("id")), card) for card in cards)
    return tuple(
        Model(
            n,
            positive(card.get("max_model_len")),
            name(card.get("root")),
            name(card.get("parent")),
        )
        for n, card in named
        if n
    )


def adapters_of(served: Sequence[Model], asked: str) -> tuple[str, ...]:
    """Names of the adapters of ``asked``, as vLLM and SGLang list them."""
    return tuple(m.name for m in served if m.name != asked and m.parent == asked)


def others(served: Sequence[Model], asked: str) -> frozenset[str]:
    """Names of the served models that are another model than ``asked``, as far as the list tells."""
    roots = {model.root for model in served if model.name == asked}
    return frozenset(
        model.name
        for model in served
        if model.name != asked and (model.root is None or model.root not in roots)
    )


def context_of(documents: Documents) -> int | None:
    """The least ``max_model_len`` of a server's models."""
    lengths = [m.context_tokens for m in models(documents.value(MODELS)) if m.context_tokens]
    return min(lengths, default=None)


def first_name(documents: Documents) -> str | None:
    """The name of its first model."""
    return next((model.name for model in models(documents.value(MODELS))), None)


def owners(documents: Documents) -> frozenset[str]:
    """Who the models are said to be owned by: most engines write their own name there."""
    cards = map(fields, entries(documents.fields(MODELS).get("data")))
    return frozenset(owner for card in cards if (owner := name(card.get("owned_by"))))

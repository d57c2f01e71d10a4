"""What every OpenAI-compatible front door tells: ``/v1/models``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class Model:
    """A served model; ``context_tokens`` only where the server says it (``max_model_len``)."""

    name: str
    context_tokens: int | None
    root: str | None = None
    """What it is made of: two names of one model have one root, an adapter has its own."""


def models(document: object) -> tuple[Model, ...]:
    """The served models, LoRA cards and others without a length included."""
    data = document.get("data") if isinstance(document, Mapping) else None
    if not isinstance(data, Sequence) or isinstance(data, str):
        return ()
    return tuple(
        Model(entry["id"], _length(entry.get("max_model_len")), _root(entry))
        for entry in data
        if isinstance(entry, Mapping) and _is_name(entry.get("id"))
    )


def others(served: Sequence[Model], asked: str) -> frozenset[str]:
    """Names of the served models that are another model than ``asked``, as far as the list tells."""
    roots = {model.root for model in served if model.name == asked}
    return frozenset(
        model.name
        for model in served
        if model.name != asked and (model.root is None or model.root not in roots)
    )


def _root(entry: Mapping[object, object]) -> str | None:
    root = entry.get("root")
    return root if _is_name(root) else None  # type: ignore[return-value]


def _is_name(value: object) -> bool:
    """What a model may be called: text that a terminal shows and a request can repeat."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _length(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < 1 << 53 else None  # type: ignore[operator,return-value]

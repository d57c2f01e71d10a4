"""What every OpenAI-compatible front door tells: ``/v1/models``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A served model; ``context_tokens`` only where the server says it (``max_model_len``)."""

    name: str
    context_tokens: int | None


def models(document: object) -> tuple[Model, ...]:
    """The served models, LoRA cards and others without a length included."""
    data = document.get("data") if isinstance(document, Mapping) else None
    if not isinstance(data, Sequence) or isinstance(data, str):
        return ()
    return tuple(
        Model(entry["id"], _length(entry.get("max_model_len")))
        for entry in data
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    )


def _length(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

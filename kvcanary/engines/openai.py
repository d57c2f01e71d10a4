"""What every OpenAI-compatible front door tells: ``/v1/models``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_NAME = 256


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
        if isinstance(entry, Mapping) and _is_name(entry.get("id"))
    )


def _is_name(value: object) -> bool:
    """What a model may be called: text that a terminal shows and a request can repeat."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _length(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < 1 << 53 else None  # type: ignore[operator,return-value]

"""What an engine has against a request, and in which step of prefill it says so."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kvcanary.lab.chances import FaultKey
from kvcanary.lab.limits import Refusal


class Step(Enum):
    """Where prefill refuses. The value is the fault that makes the refusal go unseen there."""

    LENGTH = FaultKey.REFUSED_OVER_POOL
    PARAMETERS = FaultKey.REFUSED_PARAMETER
    GRAMMAR = FaultKey.REFUSED_GRAMMAR
    WAITING = FaultKey.REFUSED_TIME_OUT


@dataclass(frozen=True, slots=True)
class Objection:
    """A reason to refuse, found at ``step``."""

    step: Step
    refusal: Refusal


TIMED_OUT: Final = Objection(
    Step.WAITING, Refusal("Request waiting timeout reached.", by="prefill", status=503)
)
"""A request waited too long for its turn (SGLang's ``SGLANG_REQ_WAITING_TIMEOUT``)."""

_RANGES: Final = (
    ("temperature", 0.0, math.inf, "temperature must be non-negative, got {}."),
    ("top_p", 0.0, 1.0, "top_p must be in (0, 1], got {}."),
    ("min_p", 0.0, 1.0, "min_p must be in [0, 1], got {}."),
    ("frequency_penalty", -2.0, 2.0, "frequency_penalty must be in [-2, 2], got {}."),
    ("presence_penalty", -2.0, 2.0, "presence_penalty must be in [-2, 2], got {}."),
    ("top_logprobs", 0.0, 20.0, "top_logprobs must be between 0 and 20, got {}."),
)
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def objection_to(fields: dict[str, Any]) -> Objection | None:
    """What prefill will have against the body of a generation request, whatever its length."""
    for message in _parameters(fields):
        return Objection(Step.PARAMETERS, Refusal(message, by="prefill"))
    for message in _grammars(fields):
        refusal = Refusal(f"Invalid grammar request: {message}", by="prefill")
        return Objection(Step.GRAMMAR, refusal)
    return None


def _parameters(fields: dict[str, Any]) -> Iterator[str]:
    for name, least, most, message in _RANGES:
        value = fields.get(name)
        if value is None:
            continue
        number = value if type(value) in (int, float) else math.nan
        if not least <= number <= most or (name == "top_p" and number == 0):
            yield message.format(f"{value!r:.40}")


def _grammars(fields: dict[str, Any]) -> Iterator[str]:
    if (regex := fields.get("regex")) is not None:
        try:
            re.compile(regex)
        except (re.error, TypeError, RecursionError, OverflowError):
            yield "regex"
    if (ebnf := fields.get("ebnf")) is not None and "::=" not in str(ebnf):
        yield "ebnf"
    form = fields.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        named = form.get("json_schema")
        schema = named.get("schema") if isinstance(named, dict) else None
        if not isinstance(schema, dict) or schema.get("type", "object") not in _TYPES:
            yield "json_schema"

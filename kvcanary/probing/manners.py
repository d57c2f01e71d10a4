"""The fields that make a request what its manner says: features that servers may have, and what is spoilt.

Names and limits as in the OpenAI API; ``regex`` as SGLang has it. Pure.
"""

import json

from kvcanary.probing.endpoint import Api
from kvcanary.record.manner import Feature, Manner, Spoilt

TOO_MANY = 1_000
"""Runners-up of each token: engines give 20 at most."""

_TOOL = {
    "type": "function",
    "function": {
        "name": "copy_label",
        "description": "Hands over the ledger label that was asked for.",
        "parameters": {
            "type": "object",
            "properties": {"label": {"type": "string"}},
            "required": ["label"],
        },
    },
}
_NO_SUCH_TYPE = {
    "type": "json_schema",
    "json_schema": {"name": "kvcanary", "schema": {"type": "no-such-type"}},
}


def overrides_of(manner: Manner, api: Api, model: str) -> tuple[tuple[str, str], ...]:
    """Fields of the body, as JSON text, that are sent in place of whatever else stands there. ``model``: what
    is asked for, the adapter where the manner says so."""
    fields = {
        **({"model": model} if manner.adapter else {}),
        **_feature(manner.feature, api),
        **_spoilt(manner.spoilt, api, model),
    }
    return tuple((name, json.dumps(value)) for name, value in fields.items())


def _feature(feature: Feature, api: Api) -> dict[str, object]:
    match feature:
        case Feature.LOGPROBS:
            return _logprobs(2, api)
        case Feature.JSON:
            return {"response_format": {"type": "json_object"}}
        case Feature.TOOLS if api is Api.CHAT:
            return {"tools": [_TOOL], "tool_choice": "auto"}
    return {}


def _spoilt(spoilt: Spoilt | None, api: Api, model: str) -> dict[str, object]:
    match spoilt:
        case Spoilt.OUTPUT:
            return {"max_tokens": "many"}
        case Spoilt.TEMPERATURE:
            return {"temperature": -1}
        case Spoilt.LOGPROBS:
            return _logprobs(TOO_MANY, api)
        case Spoilt.SCHEMA:
            return {"response_format": _NO_SUCH_TYPE}
        case Spoilt.REGEX:
            return {"regex": "("}
        case Spoilt.MODEL:
            return {"model": f"{model}:kvcanary-no-such-adapter"}
    return {}


def _logprobs(count: int, api: Api) -> dict[str, object]:
    if api is Api.CHAT:
        return {"logprobs": True, "top_logprobs": count}
    return {"logprobs": count}

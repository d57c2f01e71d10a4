"""Bodies of ``/v1/chat/completions``, ``/v1/completions`` and ``/tokenize`` to typed requests.

Both dialects are read: SGLang and vLLM agree in all that the lab understands, and each router adds
fields of its own by which the halves of a request find each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kvcanary.lab.chat_template import ROLES, Message, chat_prompt
from kvcanary.lab.objections import Objection, objection_to
from kvcanary.lab.room import Sampling
from kvcanary.lab.tokenizer import IntArray, Tokenizer

_COMPLETIONS_DEFAULT_TOKENS: Final = 16


class BadBodyError(Exception):
    """A body that the API does not take. The message says why."""


@dataclass(frozen=True)
class Transfer:
    """vLLM's ``kv_transfer_params``. ``keeps``: prefill shall keep the pages for a decode worker to
    pull; ``name``: of what was kept, where this is that decode worker."""

    keeps: bool
    name: str | None


@dataclass(frozen=True, eq=False)
class Asked:
    """One generation request as the client wrote it. ``rank``: SGLang's ``routed_dp_rank``.
    ``objection``: what prefill will have against it, whatever its length.

    ``bootstrap_room`` (SGLang) and ``transfer`` (vLLM) are the router's: the request is one half.
    """

    chat: bool
    model: str
    prompt_ids: IntArray
    sampling: Sampling
    stream: bool
    include_usage: bool
    cache_salt: str
    rank: int | None
    objection: Objection | None
    bootstrap_room: int | None = None
    transfer: Transfer | None = None


def parse_generation(
    body: bytes, tokenizer: Tokenizer, *, chat: bool, system: str = "", must_think: bool = False
) -> Asked:
    """Parse and tokenise. ``system``: what stands before every chat. ``must_think``: a chat cannot
    turn thinking off. Raises BadBodyError.

    Pure and long for long prompts (about 0.3 s per million words): call it in a thread.
    """
    fields = _json_object(body)
    prompt = (
        _messages(fields, tokenizer, system) if chat else _prompt(fields.get("prompt"), tokenizer)
    )
    if not len(prompt):
        raise BadBodyError("the prompt is empty")
    options = fields.get("stream_options") or {}
    return Asked(
        chat=chat,
        model=str(fields.get("model", "")),
        prompt_ids=prompt,
        sampling=Sampling(
            _max_tokens(fields, chat=chat),
            _stops(fields.get("stop")),
            bool(fields.get("ignore_eos", False)),
            thinks=chat and (must_think or _may_think(fields)),
        ),
        stream=bool(fields.get("stream", False)),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage", False)),
        cache_salt=str(fields.get("cache_salt") or ""),
        rank=_rank(fields.get("routed_dp_rank")),
        objection=objection_to(fields),
        bootstrap_room=_room(fields.get("bootstrap_room")),
        transfer=_transfer(fields.get("kv_transfer_params")),
    )


def _room(number: object) -> int | None:
    if number is None or (type(number) is int and number >= 0):
        return number
    raise BadBodyError(f"bootstrap_room: a number is required, not {number!r:.40}")


def _transfer(params: object) -> Transfer | None:
    if params is None:
        return None
    if not isinstance(params, dict):
        raise BadBodyError("kv_transfer_params: an object is required")
    name = params.get("remote_request_id")
    return Transfer(params.get("do_remote_decode") is True, name if isinstance(name, str) else None)


def _may_think(fields: dict[str, Any]) -> bool:
    """Whether the body leaves thinking on, where the model thinks."""
    template = fields.get("chat_template_kwargs")
    enabled = template.get("enable_thinking", True) if isinstance(template, dict) else True
    return bool(enabled) and fields.get("reasoning_effort") != "none"


def _rank(asked: object) -> int | None:
    if asked is None or (type(asked) is int and asked >= 0):
        return asked
    raise BadBodyError(f"routed_dp_rank: a DP rank is required, not {asked!r:.40}")


def parse_tokenize(body: bytes, tokenizer: Tokenizer) -> IntArray:
    """Ids of the ``prompt`` of a ``/tokenize`` body. Raises BadBodyError."""
    prompt = _json_object(body).get("prompt")
    if not isinstance(prompt, str):
        raise BadBodyError("prompt: a string is required")
    return tokenizer.encode(prompt)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadBodyError("the body is not JSON") from error
    if not isinstance(fields, dict):
        raise BadBodyError("the body is not a JSON object")
    return fields


def _messages(fields: dict[str, Any], tokenizer: Tokenizer, system: str) -> IntArray:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadBodyError("messages: a list of at least one message is required")
    first = (Message("system", system),) if system else ()
    return chat_prompt((*first, *map(_message, messages)), tokenizer)


def _message(fields: object) -> Message:
    if not isinstance(fields, dict) or fields.get("role") not in ROLES:
        raise BadBodyError(f"messages: each needs a role out of {', '.join(ROLES)}")
    content = fields.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [text for text in parts if isinstance(text, str)]
        if len(texts) != len(content):
            raise BadBodyError("messages: content parts other than text are not supported")
        content = "".join(texts)
    if not isinstance(content, str | None):
        raise BadBodyError("messages: content is a string or a list of text parts")
    return Message(fields["role"], content or "")


def _prompt(prompt: object, tokenizer: Tokenizer) -> IntArray:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if isinstance(prompt, list) and all(type(id_) is int for id_ in prompt):
        try:
            ids = np.array(prompt, np.int32)
        except OverflowError as error:
            raise BadBodyError("prompt: token ids out of range") from error
        if tokenizer.knows(ids):
            return ids
        raise BadBodyError("prompt: token ids out of range")
    raise BadBodyError("prompt: one string or one list of token ids is required")


def _max_tokens(fields: dict[str, Any], *, chat: bool) -> int | None:
    asked = fields.get("max_tokens")
    if chat and fields.get("max_completion_tokens") is not None:
        asked = fields["max_completion_tokens"]
    if asked is None:
        return None if chat else _COMPLETIONS_DEFAULT_TOKENS
    if type(asked) is not int or asked < 1:
        raise BadBodyError(f"max_tokens: a positive integer is required, not {asked!r:.40}")
    return asked


def _stops(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise BadBodyError("stop: a string or a list of strings is required")
    return tuple(stops)

"""Shapes of vLLM 0.32's answers, field by field after captures; keys are the wire's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from kvcanary.lab.limits import Refusal
from kvcanary.lab.requests import Asked
from kvcanary.lab.room import Delta, Finished, Usage
from kvcanary.lab.sglang_answers import event

_TYPES: Final = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


def _usage(usage: Usage, *, streamed: bool) -> dict[str, Any]:
    """The ``usage`` object, of a server with ``--enable-prompt-tokens-details``."""
    cached: dict[str, Any] = {"cached_tokens": usage.cached_tokens, "created_cache_tokens": None}
    fields = {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens": usage.completion_tokens,
    }
    if streamed:
        return {**fields, "prompt_tokens_details": {**cached, "created_cache_tokens": 0}}
    details = {**cached, "multimodal_tokens": None}
    return {**fields, "prompt_tokens_details": details, "completion_tokens_details": None}


@dataclass(frozen=True)
class VllmShape:
    """What all parts of one answer have in common; see `AnswerShape`."""

    chat: bool
    id: str
    created: int
    model: str
    fingerprint: str
    include_usage: bool = False
    hides_usage: bool = False
    kv_transfer_params: dict[str, Any] | None = None

    def complete(self, text: str, reasoning: str, end: Finished) -> dict[str, Any]:
        """The whole answer at once."""
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {
                "role": "assistant",
                "content": None if reasoning and not text else text,
                "refusal": None,
                "tool_calls": [],
                "reasoning": reasoning or None,
            }
        else:
            choice["text"] = text
        choice |= {
            "logprobs": None,
            "finish_reason": end.reason,
            "stop_reason": end.matched_stop,
            "token_ids": None,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            **({} if self.hides_usage else {"usage": _usage(end.usage, streamed=False)}),
            "kv_transfer_params": self.kv_transfer_params,
        }

    def opening(self) -> bytes:
        """The chunk that names the role, before a chat's first text."""
        return self._chunk({"role": "assistant", "content": ""}, {"finish_reason": None})

    def part(self, delta: Delta) -> bytes:
        """One token's text."""
        field = "reasoning" if delta.reasoning else "content"
        return self._chunk({field: delta.text}, {"finish_reason": None})

    def closing(self, end: Finished) -> bytes:
        """What is left of the text, the finish, and the usage where it was asked for."""
        finish = {"finish_reason": end.reason, "stop_reason": end.matched_stop}
        chunks = self._chunk({"content": end.tail}, finish)
        if self.include_usage and not self.hides_usage:
            usage = _usage(end.usage, streamed=True)
            fields = {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}
            chunks += event({**fields, "system_fingerprint": self.fingerprint})
        return chunks

    def _head(self, chat_object: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": chat_object if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
        }

    def _chunk(self, delta: dict[str, Any], finish: dict[str, Any]) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        choice |= {"logprobs": None, **finish, "token_ids": None}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})


@dataclass(frozen=True)
class VllmWords:
    """How vLLM answers; vllm-router passes it on as it is."""

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """Body of an error: nested."""
        return {
            "error": {
                "message": refusal.message,
                "type": _TYPES[refusal.status],
                "param": refusal.parameter,
                "code": refusal.status,
            }
        }

    def headers(self, refusal: Refusal) -> dict[str, str]:  # noqa: ARG002 - as the other engine's
        """Headers of an error."""
        return {}

    def streamed_error(self, refusal: Refusal) -> bytes:
        """An error inside a stream that has begun."""
        return event(self.error(refusal))

    def shape(self, asked: Asked, model: str, name: str, fingerprint: str) -> VllmShape:
        """The shape of an answer; its id is made of the request's."""
        return VllmShape(
            chat=asked.chat,
            id=f"{'chatcmpl' if asked.chat else 'cmpl'}-{name}",
            created=int(time.time()),
            model=model,
            fingerprint=fingerprint,
            include_usage=asked.include_usage,
        )

"""Shapes of answers as they arrive through sglang-router in front of SGLang 0.5.23 workers.

Field by field after captures of both; keys are the wire's. The wire form of an answer is made here
and nowhere else.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from kvcanary.lab.limits import Refusal
from kvcanary.lab.requests import Asked
from kvcanary.lab.room import Delta, Finished, Usage

DONE: Final = b"data: [DONE]\n\n"
_CODES: Final = {400: "bad_request", 500: "server_error", 503: "service_unavailable"}
_TYPES: Final = {400: "Bad Request", 500: "Internal Server Error", 503: "Service Unavailable"}


def compact(payload: dict[str, Any]) -> bytes:
    """JSON without spaces, as the engine writes it."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def event(payload: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + compact(payload) + b"\n\n"


def usage_fields(usage: Usage) -> dict[str, Any]:
    """The ``usage`` object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "reasoning_tokens": usage.reasoning_tokens,
        "completion_tokens_details": None,
    }


def refusal_code(refusal: Refusal) -> str:
    """The router's error code; a refusal of the front comes from the worker that answers."""
    by = "prefill" if refusal.by == "prefill" else "decode"
    return f"{by}_{_CODES[refusal.status]}"


def plain_refusal(refusal: Refusal) -> dict[str, Any]:
    """Body of a refusal of a request that does not stream: rewrapped by the router."""
    return {
        "error": {
            "type": _TYPES[refusal.status],
            "code": refusal_code(refusal),
            "message": refusal.message,
        }
    }


def worker_refusal(refusal: Refusal) -> dict[str, Any]:
    """The same as the worker itself says it: flat."""
    return {
        "object": "error",
        "message": refusal.message,
        "type": "BadRequestError" if refusal.status == 400 else "InternalServerError",
        "param": None,
        "code": refusal.status,
    }


def streamed_refusal(refusal: Refusal) -> bytes:
    """A refusal inside a 200 stream: the worker's own event, passed through."""
    fields = {
        "object": "error",
        "message": refusal.message,
        "type": _TYPES[refusal.status].upper().replace(" ", "_"),
        "param": None,
        "code": refusal.status,
    }
    return b"data: " + json.dumps({"error": fields}).encode() + b"\n\n"


@dataclass(frozen=True)
class AnswerShape:
    """What all parts of one answer have in common. ``created``: seconds since 1970.

    ``hides_usage``: some gateway takes the usage out, asked for or not.
    """

    chat: bool
    id: str
    created: int
    model: str
    fingerprint: str
    include_usage: bool = False
    hides_usage: bool = False

    def complete(self, text: str, reasoning: str, end: Finished) -> dict[str, Any]:
        """The whole answer at once."""
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {
                "role": "assistant",
                "content": None if reasoning and not text else text,
                "reasoning_content": reasoning or None,
                "tool_calls": None,
            }
        else:
            choice["text"] = text
        choice |= {
            "logprobs": None,
            "finish_reason": end.reason,
            "matched_stop": end.matched_stop,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            **({} if self.hides_usage else {"usage": usage_fields(end.usage)}),
            "metadata": {"weight_version": "default"},
        }

    def opening(self) -> bytes:
        """The chunk that names the role, before a chat's first text."""
        return self._chunk({"role": "assistant", "content": ""}, None, None)

    def part(self, delta: Delta) -> bytes:
        """One token's text."""
        if delta.reasoning:
            return self._chunk({"reasoning_content": delta.text, "content": None}, None, None)
        return self._chunk({"content": delta.text}, None, None)

    def closing(self, end: Finished) -> bytes:
        """What is left of the text, the finish, and the usage where it was asked for."""
        last = {"content": end.tail} if end.tail or not self.chat else {}
        chunks = self._chunk(last, end.reason, end.matched_stop)
        if self.include_usage and not self.hides_usage:
            fields = self._head("chat.completion.chunk")
            chunks += event({**fields, "choices": [], "usage": usage_fields(end.usage)})
        return chunks

    def _head(self, chat_object: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": chat_object if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def _chunk(self, delta: dict[str, Any], reason: str | None, stop: str | None) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["delta"] = {"reasoning_content": None, **delta}
        else:
            choice["text"] = delta["content"]
        choice |= {"logprobs": None, "finish_reason": reason, "matched_stop": stop}
        fields = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self.include_usage and not self.hides_usage and not self.chat:
            fields["usage"] = None
        return event(fields)


@dataclass(frozen=True)
class SglangWords:
    """How SGLang answers; ``at_router``: through sglang-router, which wraps errors anew."""

    at_router: bool

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """Body of an error."""
        return plain_refusal(refusal) if self.at_router else worker_refusal(refusal)

    def headers(self, refusal: Refusal) -> dict[str, str]:
        """Headers of an error."""
        return {"x-smg-error-code": refusal_code(refusal)} if self.at_router else {}

    def streamed_error(self, refusal: Refusal) -> bytes:
        """An error inside a stream that has begun."""
        return streamed_refusal(refusal)

    def shape(self, asked: Asked, model: str, name: str, fingerprint: str) -> AnswerShape:  # noqa: ARG002 - the engine makes ids of its own
        """The shape of an answer, its time and id included."""
        return AnswerShape(
            chat=asked.chat,
            id=secrets.token_hex(16),
            created=int(time.time()),
            model=model,
            fingerprint=fingerprint,
            include_usage=asked.include_usage,
        )

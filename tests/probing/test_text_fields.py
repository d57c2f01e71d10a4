"""Text is found in whatever field of an answer it comes, streamed in two halves or whole, chat or completions."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Api, Endpoint, PlainText, Request
from kvcanary.probing.outcome import Reply
from tests.probing.rogue_server import Call, rogue_server, run, sse

THEIRS = "KVC-7Q4X-M2N8-RT9B-HJWC"
REQUEST = Request("kvc-1", PlainText("hello"), 4, "tenant-a")

Field = Callable[[str], dict[str, Any]]

MESSAGES: dict[str, Field] = {
    "content": lambda t: {"content": t},
    "content parts": lambda t: {"content": [{"type": "text", "text": t}]},
    "reasoning": lambda t: {"reasoning": t},
    "reasoning_content": lambda t: {"reasoning_content": t},
    "both kinds of reasoning": lambda t: {"reasoning_content": "I think", "reasoning": t},
    "refusal": lambda t: {"refusal": t},
    "tool arguments": lambda t: {"tool_calls": [{"function": {"arguments": t}}]},
    "tool name": lambda t: {"tool_calls": [{"function": {"name": t}}]},
    "function call": lambda t: {"function_call": {"arguments": t}},
    "a field nobody knows": lambda t: {"thinking_blocks": [{"thinking": t}]},
    "audio": lambda t: {"audio": {"transcript": t}},
    "annotations": lambda t: {"annotations": [{"url_citation": {"title": t}}]},
}


def _bytes_of(text: str) -> list[int]:
    return list(text.encode())


CHAT_CHOICES: dict[str, Field] = {
    "token": lambda t: {"logprobs": {"content": [{"token": t}]}},
    "token bytes": lambda t: {"logprobs": {"content": [{"token": "a", "bytes": _bytes_of(t)}]}},
    "token of a refusal": lambda t: {"logprobs": {"refusal": [{"token": t}]}},
    "second candidate": lambda t: {
        "logprobs": {
            "content": [{"token": "a", "top_logprobs": [{"token": "a"}, {"token": t}]}],
        }
    },
    "beside the message": lambda t: {"prompt_text": t},
}
COMPLETION_CHOICES: dict[str, Field] = {
    "text": lambda t: {"text": t},
    "tokens": lambda t: {"logprobs": {"tokens": [t]}},
    "candidates": lambda t: {"logprobs": {"top_logprobs": [{t: -0.1}]}},
}
FIELDS = [
    *((Api.CHAT, name, "message", make) for name, make in MESSAGES.items()),
    *((Api.CHAT, name, "choice", make) for name, make in CHAT_CHOICES.items()),
    *((Api.COMPLETIONS, name, "choice", make) for name, make in COMPLETION_CHOICES.items()),
]


def event(api: Api, place: str, fields: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": None}
    if api is Api.CHAT:
        choice["delta" if stream else "message"] = fields if place == "message" else {}
    if place == "choice":
        choice |= fields
    return {"id": "r", "model": "tiny", "choices": [choice]}


async def asked(api: Api, parts: list[dict[str, Any]], *, stream: bool) -> Reply:
    end = {"id": "r", "model": "tiny", "choices": [{"index": 0, "finish_reason": "stop"}]}

    async def handler(call: Call) -> None:
        if stream:
            await call.start_stream()
            await call.say(sse(*parts, end, "[DONE]"))
            call.hang_up()
        else:
            await call.answer(200, json.dumps(parts[0]).encode())

    async with (
        rogue_server(handler) as server,
        Client(Endpoint(server.base_url, "tiny", api, stream)) as client,
    ):
        return await client.send(REQUEST, deadline_seconds=60)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("api", "name", "place", "make"), FIELDS, ids=[f"{a}-{n}" for a, n, *_ in FIELDS]
)
def test_text_is_read_wherever_it_comes(
    api: Api, name: str, place: str, make: Field, *, stream: bool
) -> None:
    texts = (THEIRS[:11], THEIRS[11:]) if stream else (THEIRS,)
    parts = [event(api, place, make(text), stream=stream) for text in texts]
    reply = run(asked(api, parts, stream=stream))
    assert any(THEIRS in text for text in reply.texts), name
    assert THEIRS not in repr(reply)


@pytest.mark.parametrize(
    "strange",
    [{"id": "another"}, {"model": "other"}, {"choices": [{"index": 1, "delta": {"content": "b"}}]}],
    ids=["id", "model", "index"],
)
def test_parts_that_do_not_name_one_response_are_seen(strange: dict[str, Any]) -> None:
    first = event(Api.CHAT, "message", {"content": "a"}, stream=True)
    assert not run(asked(Api.CHAT, [first, first], stream=True)).mixed
    assert run(asked(Api.CHAT, [first, {**first, **strange}], stream=True)).mixed


@pytest.mark.parametrize(
    ("ids", "strays"),
    [
        ("aaaa", ""),
        ("aabaa", "b"),
        ("abaca", "bc"),
        ("baaa", ""),
        ("aaab", ""),
        ("aabb", ""),
        ("abcdef", ""),
        ("abab", "b"),
    ],
)
def test_strays_stand_between_parts_of_the_response_itself(ids: str, strays: str) -> None:
    first = event(Api.CHAT, "message", {"content": "a"}, stream=True)
    reply = run(asked(Api.CHAT, [{**first, "id": f"id-{i}"} for i in ids], stream=True))
    assert reply.stray_ids == tuple(f"id-{i}" for i in strays)
    assert "id-" not in repr(reply)


def test_a_field_that_nobody_knows_is_no_answer() -> None:
    """It is searched; whether and when an answer came is told by text that has a name."""
    only = event(Api.CHAT, "message", {"role": "assistant", "x": "y"}, stream=True)
    reply = run(asked(Api.CHAT, [only], stream=True))
    assert reply.streamed_chunks == 0
    assert "y" in reply.other_text

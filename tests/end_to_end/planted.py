"""A server that plants somebody's text and keys in every place that a server can write to."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.probing.rogue_server import Call, Handler, sse

CUSTOMER = "Mrs-Hildegard-Zwiebelfisch-IBAN-DE02120300000000202051"
SERVER_KEY = "sk-server-7f3e9a-do-not-print"
USER_KEY = "sk-user-5b1c22-do-not-print"
SECRETS = (CUSTOMER, CUSTOMER.lower(), CUSTOMER[:20], SERVER_KEY, USER_KEY)
HEADERS = (
    f"X-Note: {SERVER_KEY}\r\nSet-Cookie: id={SERVER_KEY}\r\nServer: {CUSTOMER}\r\n"
    f"X-Request-Id: {CUSTOMER}\r\nRetry-After: {CUSTOMER}\r\nLocation: http://{CUSTOMER}.invalid/\r\n"
)


def metadata(call: Call) -> Handler:
    """What every GET is answered with: a secret in each field that is free text."""
    port = call.writer.get_extra_info("sockname")[1]
    worker = f"http://127.0.0.1:{port}"
    documents: dict[str, object] = {
        "/v1/models": {
            "object": "list",
            "data": [
                {"id": "tiny", "owned_by": CUSTOMER, "root": CUSTOMER, "max_model_len": 4096},
                {"id": CUSTOMER, "max_model_len": CUSTOMER, "parent": SERVER_KEY},
            ],
            "note": SERVER_KEY,
        },
        "/workers": {
            "workers": [
                {"worker_type": "prefill", "url": worker, "model_id": CUSTOMER},
                {"worker_type": "decode", "url": f"http://{CUSTOMER}:{SERVER_KEY}@127.0.0.1:1"},
                {"worker_type": CUSTOMER, "url": CUSTOMER},
            ]
        },
        "/server_info": {
            "api_key": SERVER_KEY,
            "admin_api_key": SERVER_KEY,
            "version": f"0.5.23-{CUSTOMER}",
            "max_total_num_tokens": 8192,
            "max_req_input_len": 8186,
            "context_length": 4096,
            "page_size": 16,
            "disaggregation_mode": CUSTOMER,
            "served_model_name": CUSTOMER,
            "internal_states": [{"memory_usage": {CUSTOMER: CUSTOMER}}],
        },
        "/version": {"version": CUSTOMER},
        "/v1/loads": {"loads": [{CUSTOMER: SERVER_KEY}]},
    }
    document = documents.get(call.path.partition("?")[0])
    if call.path.endswith("/metrics"):
        text = (
            f"# HELP x {CUSTOMER}\n# TYPE {SERVER_KEY} gauge\n"
            f'sglang:prompt_tokens_total{{m="{CUSTOMER}"}} 1\n'
            f'vllm:cache_config_info{{engine="{CUSTOMER}",block_size="{SERVER_KEY}"}} 1\n{CUSTOMER} 1\n'
        )
        return answering(200, text, "text/plain")
    if document is None:
        return answering(404, json.dumps({"detail": CUSTOMER}))
    return answering(200, json.dumps(document))


def answering(status: int, text: str, content_type: str = "application/json") -> Handler:
    """One whole answer, with secrets in its headers."""

    async def handler(call: Call) -> None:
        await call.answer(status, text.encode(), content_type, HEADERS)

    return handler


def prompt_of(call: Call) -> str:
    """The text that was sent, of either API."""
    fields = call.fields
    return str(fields["prompt"] if "prompt" in fields else fields["messages"][0]["content"])


def label_asked_for(call: Call) -> str:
    """The label that the prompt asks for, as an honest model repeats it; the last code where it asks for none."""
    text = prompt_of(call)
    before, _, lead = text.rpartition("Answer: ")
    at = before.rfind(f"{lead} KVC-") if lead else -1
    codes = [word for word in text[max(0, at) :].split() if word.startswith("KVC-")]
    return codes[0] if at >= 0 else codes[-1]


class Everywhere:
    """Answers with the right label, and with text of an earlier request and of a customer in every field.

    Attributes:
        told: codes and sentences of earlier requests that were given away.
        processes: command lines and names of all processes while it answered.
    """

    def __init__(self) -> None:
        self.told: set[str] = set()
        self.processes = ""
        self._earlier = ""

    async def __call__(self, call: Call) -> None:
        if not self.processes:
            self.processes = "\n".join(_processes())
        theirs = CUSTOMER
        if self._earlier:
            code, verse = _of(self._earlier)
            self.told |= {code, verse}
            theirs = f"{CUSTOMER} {code} {verse}"
        if not self._earlier and prompt_of(call).count(". ") > 20:
            self._earlier = prompt_of(call)
        said = f"{label_asked_for(call)} \x1b[31m{theirs}\x1b[0m <script>{theirs}</script>"
        chat, stream = "messages" in call.fields, bool(call.fields.get("stream"))
        event = _event(said, theirs, len(prompt_of(call).split()), chat=chat, stream=stream)
        if stream:
            await _streamed(call, event)
        else:
            await call.answer(200, json.dumps(event).encode(), extra=HEADERS)


async def _streamed(call: Call, event: dict[str, Any]) -> None:
    await call.say(
        f"HTTP/1.1 200 {CUSTOMER}\r\nContent-Type: text/event-stream\r\n{HEADERS}"
        "Transfer-Encoding: chunked\r\nTrailer: X-Trailer\r\n\r\n".encode()
    )
    await call.chunk(
        f": {CUSTOMER}\nevent: {CUSTOMER}\nid: {CUSTOMER}\nretry: {CUSTOMER}\n".encode()
    )
    await call.chunk(sse(event))
    await call.chunk(f": {SERVER_KEY}\n\n{CUSTOMER}: {CUSTOMER}\n\n".encode())
    await call.chunk(sse("[DONE]"))
    await call.say(f"0\r\nX-Trailer: {CUSTOMER}\r\n\r\n".encode())


def _event(said: str, theirs: str, words: int, *, chat: bool, stream: bool) -> dict[str, Any]:
    token = {"token": theirs, "bytes": list(theirs.encode()), "logprob": -0.5}
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": theirs,
        "stop_reason": theirs,
        "matched_stop": theirs,
        "note": theirs,
        "logprobs": {
            "content": [{**token, "top_logprobs": [token, token]}],
            "refusal": [token],
            "tokens": [theirs],
            "top_logprobs": [{theirs: -0.5}],
        },
    }
    message = {
        "role": theirs,
        "content": said,
        "reasoning": theirs,
        "reasoning_content": f"I remember {theirs}",
        "refusal": theirs,
        "tool_calls": [
            {"id": theirs, "type": theirs, "function": {"name": theirs, "arguments": theirs}}
        ],
        "function_call": {"name": theirs, "arguments": theirs},
        "annotations": [{"text": theirs}],
    }
    if chat:
        choice["delta" if stream else "message"] = message
    else:
        choice["text"] = said
    return {
        "id": CUSTOMER,
        "object": CUSTOMER,
        "model": CUSTOMER,
        "system_fingerprint": CUSTOMER,
        "service_tier": theirs,
        "choices": [choice],
        "usage": {
            "prompt_tokens": words,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": theirs, theirs: theirs},
            theirs: theirs,
        },
    }


def _of(prompt: str) -> tuple[str, str]:
    """A code and two sentences, a verse, of a prompt that are its own."""
    code = next(word for word in prompt.split() if word.startswith("KVC-"))
    sentences = prompt.split(". ")
    return code, ". ".join(sentences[8:11])


def _processes() -> Iterator[str]:
    for name in ("cmdline", "comm"):
        for path in Path("/proc").glob(f"[0-9]*/{name}"):
            try:
                yield path.read_bytes().decode("utf-8", "replace")
            except OSError:
                continue


def _error(**fields: object) -> str:
    return json.dumps(fields)


_REFUSES = (
    f"{CUSTOMER}: The input (9000 tokens) is longer than the model's context length (10 tokens)."
)
_ABORTS = {
    "id": CUSTOMER,
    "choices": [
        {"index": 0, "finish_reason": {"type": "abort", "message": CUSTOMER, "status_code": 500}}
    ],
}


def in_stream(*events: object, name: str = "") -> Handler:
    """A stream that ends with an error."""

    async def handler(call: Call) -> None:
        await call.start_stream()
        if name:
            await call.say(f"event: {name}\n".encode())
        await call.say(sse(*events))
        call.hang_up()

    return handler


async def garbled(call: Call) -> None:
    await call.say(f"HTTP/9 {CUSTOMER}\r\n{CUSTOMER}\r\n\r\n".encode())
    call.hang_up()


async def bad_header(call: Call) -> None:
    await call.say(f"HTTP/1.1 200 OK\r\n{CUSTOMER}\x00 {SERVER_KEY}\r\n\r\n".encode())
    call.hang_up()


def _delta(text: str) -> dict[str, object]:
    return {"id": CUSTOMER, "choices": [{"index": 0, "delta": {"content": text}}]}


ERRORS: dict[str, Callable[[], Handler]] = {
    "nested": lambda: answering(
        500, _error(error={"message": CUSTOMER, "type": CUSTOMER, "code": SERVER_KEY})
    ),
    "flat": lambda: answering(
        500, _error(object="error", message=CUSTOMER, type=CUSTOMER, param=CUSTOMER)
    ),
    "detail": lambda: answering(422, _error(detail=[{"msg": CUSTOMER, "loc": [CUSTOMER]}])),
    "refusal": lambda: answering(
        400, _error(object="error", message=_REFUSES, type=CUSTOMER, code=400)
    ),
    "plain": lambda: answering(500, CUSTOMER, "text/plain"),
    "page": lambda: answering(200, f"<html><title>{CUSTOMER}</title></html>", "text/html"),
    "not json": lambda: answering(200, "{" + CUSTOMER),
    "unauthorized": lambda: answering(401, _error(error={"message": f"{CUSTOMER} {USER_KEY}"})),
    "no such model": lambda: answering(
        404, _error(error={"message": f"model {CUSTOMER} not found"})
    ),
    "redirect": lambda: answering(302, CUSTOMER),
    "overload": lambda: answering(503, CUSTOMER),
    "in the stream": lambda: in_stream(
        _delta(CUSTOMER), {"error": {"message": CUSTOMER, "code": 500}}
    ),
    "an error event": lambda: in_stream({"message": CUSTOMER, "type": CUSTOMER}, name="error"),
    "an abort": lambda: in_stream(_ABORTS),
    "cut off": lambda: in_stream(
        _delta(CUSTOMER), '{"choices": [{"delta": {"content": "' + CUSTOMER
    ),
    "garbled": lambda: garbled,
    "a bad header": lambda: bad_header,
}
"""Ways to fail with somebody's text in one's mouth."""


def server(completions: Handler) -> Handler:
    """``completions`` answers the prompts, ``metadata`` everything else."""

    async def handler(call: Call) -> None:
        await (completions(call) if call.method == "POST" else metadata(call)(call))

    return handler

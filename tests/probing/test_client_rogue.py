"""Servers that misbehave: each becomes an outcome, within its bounds, and never an exception."""

import asyncio
import gzip
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kvcanary.errors import (
    KvcanaryError,
    NotAnLLMServer,
    Unauthorized,
    UnknownModel,
    Unreachable,
)
from kvcanary.probing.client import Client, ReadLimits
from kvcanary.probing.endpoint import Api, Endpoint, PlainText, Request
from kvcanary.probing.outcome import Outcome, Reason, Reply, raise_for_setup
from kvcanary.probing.refusal import Refusal, RefusalShape
from tests.probing.rogue_server import Call, Handler, delta, rogue_server, run, sse, usage

REQUEST = Request("kvc-1", PlainText("hello"), 4, "tenant-a")
PATIENT = 60.0
"""Seconds; never reached where the test expects an end by itself."""
IMPATIENT = 0.3
"""Seconds; where a hang is what is tested."""
HTML = b"<!DOCTYPE html><html><body>Welcome</body></html>"


def ask(
    handler: Handler,
    *,
    stream: bool = True,
    api: Api = Api.CHAT,
    deadline_seconds: float = PATIENT,
    limits: ReadLimits | None = None,
    read_body: bool = True,
) -> Reply:
    async def exchange() -> Reply:
        async with rogue_server(handler, read_body=read_body) as server:
            endpoint = Endpoint(server.base_url, "tiny", api=api, stream=stream)
            async with Client(endpoint, limits=limits) as client:
                return await client.send(REQUEST, deadline_seconds=deadline_seconds)

    return run(exchange())


def saying(status: int, body: bytes, content_type: str = "application/json") -> Handler:
    async def handler(call: Call) -> None:
        await call.answer(status, body, content_type)

    return handler


def streaming(*events: object) -> Handler:
    async def handler(call: Call) -> None:
        await call.start_stream()
        await call.say(sse(*events))
        call.hang_up()

    return handler


def fate(reply: Reply) -> tuple[Outcome, Reason]:
    return reply.outcome, reply.reason


# no connection


def ask_at(base_url: str, *, ca_file: str | None = None, deadline_seconds: float = 20) -> Reply:
    async def exchange() -> Reply:
        async with Client(Endpoint(base_url, "tiny", ca_file=ca_file)) as client:
            return await client.send(REQUEST, deadline_seconds=deadline_seconds)

    return run(exchange())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def test_an_unknown_host() -> None:
    reply = ask_at("http://nohost.invalid/v1")
    assert fate(reply) == (Outcome.NOT_REACHED, Reason.UNKNOWN_HOST)
    assert reply.status is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_refused_connection(host: str) -> None:
    reply = ask_at(f"http://{host}:{free_port()}/v1")
    assert fate(reply) == (Outcome.NOT_REACHED, Reason.CONNECTION_REFUSED)


def test_a_server_that_never_shakes_hands_was_not_reached() -> None:
    async def exchange() -> Reply:
        async with (
            rogue_server(saying(200, b"{}")) as server,
            Client(Endpoint(f"https://127.0.0.1:{server.port}/v1", "tiny")) as client,
        ):
            return await client.send(REQUEST, deadline_seconds=IMPATIENT)

    assert fate(run(exchange())) == (Outcome.NOT_REACHED, Reason.CONNECT_TIMEOUT)


def test_what_is_no_http() -> None:
    async def handler(call: Call) -> None:
        await call.say(b"220 mail.example.com ESMTP\r\n\r\n")
        call.hang_up()

    reply = ask(handler)
    assert fate(reply) == (Outcome.ERRORED, Reason.NOT_HTTP)


# closed without an answer


def test_closed_without_any_answer_is_a_proxy_s_doing() -> None:
    async def handler(call: Call) -> None:
        call.hang_up()

    assert fate(ask(handler)) == (Outcome.NOT_REACHED, Reason.IDLE_RESET)


def test_reset_without_any_answer_is_a_proxy_s_doing() -> None:
    async def handler(call: Call) -> None:
        call.hang_up(reset=True)

    assert fate(ask(handler)) == (Outcome.NOT_REACHED, Reason.IDLE_RESET)


def test_closed_while_the_body_is_being_sent() -> None:
    async def handler(call: Call) -> None:
        call.hang_up(reset=True)

    async def exchange() -> Reply:
        async with (
            rogue_server(handler, read_body=False) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            long = Request("kvc-1", PlainText("x" * 50_000_000), 4, "tenant-a")
            return await client.send(long, deadline_seconds=PATIENT)

    reply = run(exchange())
    assert fate(reply) == (Outcome.NOT_REACHED, Reason.CLOSED_WHILE_SENDING)
    assert reply.send_seconds is None


# statuses


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (301, Outcome.ERRORED, Reason.REDIRECT),
        (307, Outcome.ERRORED, Reason.REDIRECT),
        (401, Outcome.ERRORED, Reason.UNAUTHORIZED),
        (403, Outcome.ERRORED, Reason.UNAUTHORIZED),
        (404, Outcome.ERRORED, Reason.HTML),
        (408, Outcome.NOT_REACHED, Reason.HTTP_408),
        (413, Outcome.NOT_REACHED, Reason.HTTP_413),
        (429, Outcome.NOT_REACHED, Reason.RATE_LIMITED),
        (500, Outcome.ERRORED, Reason.HTML),
        (502, Outcome.NOT_REACHED, Reason.HTTP_502),
        (503, Outcome.NOT_REACHED, Reason.OVERLOADED),
        (504, Outcome.NOT_REACHED, Reason.HTTP_504),
        (524, Outcome.NOT_REACHED, Reason.HTTP_52X),
        (529, Outcome.NOT_REACHED, Reason.OVERLOADED),
    ],
)
def test_web_pages_with_a_status(status: int, outcome: Outcome, reason: Reason) -> None:
    reply = ask(saying(status, HTML, "text/html"))
    assert fate(reply) == (outcome, reason)
    assert reply.status == status
    assert reply.refusal is None


@pytest.mark.parametrize(
    ("status", "body", "outcome", "reason"),
    [
        (400, b'{"error":{"message":"bad grammar"}}', Outcome.ERRORED, Reason.CLIENT_ERROR),
        (400, b'{"error":{"code":"model_not_found"}}', Outcome.ERRORED, Reason.MODEL_NOT_FOUND),
        (
            400,
            b'{"error":{"message":"token quota exceeded"}}',
            Outcome.NOT_REACHED,
            Reason.RATE_LIMITED,
        ),
        (404, b'{"detail":"Not Found"}', Outcome.ERRORED, Reason.PATH_NOT_FOUND),
        (405, b'{"detail":"Method Not Allowed"}', Outcome.ERRORED, Reason.PATH_NOT_FOUND),
        (413, b'{"error":"body exceeds 1048576 bytes"}', Outcome.NOT_REACHED, Reason.HTTP_413),
        (413, b'{"error":"maximum context length is 9"}', Outcome.REFUSED, Reason.LENGTH_LIMIT),
        (
            429,
            b'{"error":"tokens exceed the context length of 9"}',
            Outcome.NOT_REACHED,
            Reason.RATE_LIMITED,
        ),
        (
            403,
            b'{"error":"maximum context length is 9"}',
            Outcome.ERRORED,
            Reason.UNAUTHORIZED,
        ),
        (
            500,
            b'{"error":"maximum context length is 9"}',
            Outcome.ERRORED,
            Reason.LIMIT_AS_SERVER_ERROR,
        ),
        (500, b"", Outcome.ERRORED, Reason.SERVER_ERROR),
        (400, b"\x00\x01", Outcome.ERRORED, Reason.CLIENT_ERROR),
        (400, b"[" * 100_000, Outcome.ERRORED, Reason.CLIENT_ERROR),
    ],
)
def test_error_bodies_with_a_status(
    status: int, body: bytes, outcome: Outcome, reason: Reason
) -> None:
    assert fate(ask(saying(status, body))) == (outcome, reason)


def test_a_redirect_is_not_followed() -> None:
    async def exchange() -> tuple[Reply, int]:
        async with rogue_server(saying(200, b"{}")) as elsewhere:

            async def handler(call: Call) -> None:
                await call.answer(307, extra=f"Location: {elsewhere.base_url}\r\n")

            async with (
                rogue_server(handler) as server,
                Client(Endpoint(server.base_url, "tiny")) as client,
            ):
                reply = await client.send(REQUEST, deadline_seconds=PATIENT)
            return reply, len(elsewhere.calls)

    reply, calls_elsewhere = run(exchange())
    assert fate(reply) == (Outcome.ERRORED, Reason.REDIRECT)
    assert calls_elsewhere == 0


# bodies with status 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("body", "content_type", "reasons"),
    [
        (b"", "application/json", (Reason.EMPTY_BODY, Reason.EMPTY_BODY)),
        (b" \r\n ", "text/event-stream", (Reason.EMPTY_BODY, Reason.EMPTY_BODY)),
        (HTML, "text/html; charset=utf-8", (Reason.HTML, Reason.HTML)),
        (HTML, "application/json", (Reason.HTML, Reason.HTML)),
        (b"ok", "text/plain", (Reason.NOT_SSE, Reason.NOT_JSON)),
        (b"\x00\xff" * 5_000_000, "application/octet-stream", (Reason.NOT_SSE, Reason.NOT_JSON)),
        (b"{not json", "application/json", (Reason.NOT_JSON, Reason.NOT_JSON)),
        (b"[" * 1_000_000, "application/json", (Reason.NOT_JSON, Reason.NOT_JSON)),
        (b'{"a": %s}' % (b"9" * 5000), "application/json", (Reason.NOT_JSON, Reason.NOT_JSON)),
        (b"[1]", "application/json", (Reason.NOT_JSON, Reason.NOT_JSON)),
        (b"{}", "application/json", (Reason.NO_CHOICES, Reason.NO_CHOICES)),
        (b'{"choices":7}', "application/json", (Reason.NO_CHOICES, Reason.NO_CHOICES)),
        (b"data: {not json}\n\n", "text/event-stream", (Reason.NOT_JSON, Reason.NOT_JSON)),
        (b"data: [DONE]\n\n", "text/event-stream", (Reason.NO_CHOICES, Reason.NO_CHOICES)),
    ],
)
def test_a_200_that_is_no_answer(
    body: bytes, content_type: str, reasons: tuple[Reason, Reason], *, stream: bool
) -> None:
    reply = ask(saying(200, body, content_type), stream=stream)
    assert fate(reply) == (Outcome.ERRORED, reasons[0] if stream else reasons[1])


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/octet-stream"])
def test_ten_megabytes_of_binary_are_not_read(content_type: str) -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked(content_type)
        for _ in range(160):
            await call.chunk(bytes(range(256)) * 256)
        await call.chunk(b"")

    reply = ask(handler)
    assert reply.outcome is Outcome.ERRORED
    assert reply.reason in {Reason.NOT_SSE, Reason.TOO_LARGE, Reason.NOT_JSON}


def test_a_compressed_body_that_nobody_asked_for_is_no_answer() -> None:
    async def handler(call: Call) -> None:
        assert call.headers["accept-encoding"] == "identity"
        bomb = gzip.compress(b"0" * 10_000_000)
        await call.answer(200, bomb, extra="Content-Encoding: gzip\r\n")

    assert ask(handler).outcome is Outcome.ERRORED


def test_an_error_object_instead_of_an_answer() -> None:
    body = b'{"error":{"message":"worker died","code":"worker"}}'
    assert fate(ask(saying(200, body), stream=False)) == (Outcome.ERRORED, Reason.ERROR_OBJECT)


def test_a_refusal_in_a_200_that_is_no_stream_is_a_refusal() -> None:
    body = b'{"error":{"message":"maximum context length is 9 tokens","code":400}}'
    reply = ask(saying(200, body), stream=False)
    assert fate(reply) == (Outcome.REFUSED, Reason.LENGTH_LIMIT)


def test_an_answer_in_one_piece_to_a_request_for_a_stream_is_still_judged() -> None:
    body = b'{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}'
    reply = ask(saying(200, body))
    assert fate(reply) == (Outcome.ANSWERED, Reason.NOT_STREAMED)
    assert reply.content == "whole"


def test_a_stream_to_a_request_for_one_piece_is_still_judged() -> None:
    reply = ask(streaming(delta("hello", "stop"), "[DONE]"), stream=False)
    assert fate(reply) == (Outcome.ANSWERED, Reason.COMPLETE)
    assert reply.content == "hello"


# streams


def test_a_whole_stream() -> None:
    reply = ask(
        streaming(delta(role="assistant"), delta("a"), delta("b", "stop"), usage(), "[DONE]")
    )
    assert fate(reply) == (Outcome.ANSWERED, Reason.COMPLETE)
    assert reply.content == "ab"
    assert reply.streamed_chunks == 2
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (10, 2, 4)


def test_a_stream_without_usage_has_no_counts() -> None:
    reply = ask(streaming(delta("a", "stop"), "[DONE]"))
    assert fate(reply) == (Outcome.ANSWERED, Reason.COMPLETE)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (None,) * 3


def test_text_of_every_kind_is_kept() -> None:
    calls = [{"index": 0, "function": {"name": "look", "arguments": '{"up":'}}]
    more = [{"index": 0, "function": {"arguments": '"Orchard"}'}}]
    reply = ask(
        streaming(
            delta(reasoning_content="thinking "),
            delta(reasoning="aloud"),
            delta("said"),
            delta(refusal="no"),
            delta(tool_calls=calls),
            delta(tool_calls=more),
            delta(finish="tool_calls"),
            "[DONE]",
        )
    )
    assert reply.content == "said"
    assert reply.reasoning == "thinking aloud"
    assert reply.other_text == 'no\nlook{"up":"Orchard"}'
    assert [text.reveal() for text in reply.texts] == [
        "said",
        "thinking aloud",
        'no\nlook{"up":"Orchard"}',
    ]


def test_text_of_a_completion_stream() -> None:
    choice = {"index": 0, "text": "said", "finish_reason": "length"}
    reply = ask(streaming({"choices": [choice]}, "[DONE]"), api=Api.COMPLETIONS)
    assert reply.content == "said"


def test_content_in_parts_is_kept() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"text": "b"}]
    body = {"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]}
    assert ask(streaming(body, "[DONE]")).content == "ab"


def test_half_characters_in_two_chunks_are_put_together() -> None:
    reply = ask(streaming(delta("\ud83d"), delta("\udc24"), delta("\udc00", "stop"), "[DONE]"))
    assert reply.content == "\N{BABY CHICK}\ufffd"
    reply.content.reveal().encode()


def test_a_stream_cut_in_the_middle() -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(delta("some text")))
        call.hang_up()

    reply = ask(handler)
    assert fate(reply) == (Outcome.TRUNCATED, Reason.CUT)
    assert reply.content == "some text"


def test_a_stream_cut_before_any_text() -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked()
        call.hang_up()

    assert fate(ask(handler)) == (Outcome.TRUNCATED, Reason.CUT_BEFORE_TEXT)


def test_text_in_an_event_that_was_cut_is_kept_for_the_detectors() -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(delta("a")) + b'data: {"choices":[{"delta":{"content":"Orchard of')
        call.hang_up()

    reply = ask(handler)
    assert fate(reply) == (Outcome.TRUNCATED, Reason.CUT)
    assert reply.content == "a"
    assert "Orchard of" in reply.other_text


def test_a_json_body_that_was_cut_is_kept_for_the_detectors() -> None:
    async def handler(call: Call) -> None:
        await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
        await call.say(b'{"choices":[{"message":{"content":"Orchard of')
        call.hang_up()

    reply = ask(handler, stream=False)
    assert fate(reply) == (Outcome.TRUNCATED, Reason.CUT_BEFORE_TEXT)
    assert "Orchard of" in reply.other_text


def test_a_stream_cut_after_the_finish_reason_is_an_answer() -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(delta("a", "stop")))
        call.hang_up()

    assert fate(ask(handler)) == (Outcome.ANSWERED, Reason.NO_DONE)


def test_a_stream_cut_after_an_error_is_that_error() -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(LIMIT))
        call.hang_up()

    assert fate(ask(handler)) == (Outcome.REFUSED, Reason.LENGTH_LIMIT)


def test_a_connection_that_breaks_after_a_whole_answer_does_not_spoil_it() -> None:
    async def handler(call: Call) -> None:
        body = b'{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}'
        await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(body) + 9) + body)
        call.hang_up()

    reply = ask(handler, stream=False)
    assert fate(reply) == (Outcome.ANSWERED, Reason.COMPLETE)


def test_counts_that_grow_with_the_stream_end_at_the_last_one_given() -> None:
    none: dict[str, object] = {"choices": [], "usage": {"prompt_tokens": None}}
    reply = ask(streaming(usage(10, 1), usage(10, 2), none, delta("a", "stop"), "[DONE]"))
    assert (reply.prompt_tokens, reply.completion_tokens) == (10, 2)


def test_a_finish_reason_that_is_a_refusal_is_one() -> None:
    finish = {
        "type": "abort",
        "message": "Input length (800 tokens) exceeds the maximum allowed length (694 tokens).",
        "status_code": 400,
    }
    reply = ask(streaming({"choices": [{"delta": {}, "finish_reason": finish}]}, "[DONE]"))
    assert fate(reply) == (Outcome.REFUSED, Reason.LENGTH_LIMIT)
    assert reply.refusal == Refusal(RefusalShape.IN_STREAM, 400, 694, 800)


@pytest.mark.parametrize(
    ("events", "outcome", "reason"),
    [
        ([delta("a")], Outcome.TRUNCATED, Reason.NO_DONE),
        ([delta("a", "stop")], Outcome.ANSWERED, Reason.NO_DONE),
        ([delta("a"), "[DONE]"], Outcome.ANSWERED, Reason.NO_FINISH_REASON),
        ([delta("a"), delta("", "abort"), "[DONE]"], Outcome.ERRORED, Reason.ABORTED_BY_SERVER),
        ([delta("", "error"), "[DONE]"], Outcome.ERRORED, Reason.ABORTED_BY_SERVER),
        (
            [{"choices": [{"delta": {}, "finish_reason": {"type": "abort", "message": "?"}}]}],
            Outcome.ERRORED,
            Reason.ABORTED_BY_SERVER,
        ),
        (
            [delta("a"), {"error": {"message": "worker died", "code": 500}}, "[DONE]"],
            Outcome.ERRORED,
            Reason.IN_STREAM_ERROR,
        ),
        (
            [{"object": "error", "message": "worker died", "code": "500"}],
            Outcome.ERRORED,
            Reason.IN_STREAM_ERROR,
        ),
        ([{"error": {"message": "busy", "code": 503}}], Outcome.NOT_REACHED, Reason.OVERLOADED),
        ([{"error": {"message": "slow", "code": 429}}], Outcome.NOT_REACHED, Reason.RATE_LIMITED),
    ],
)
def test_how_streams_end(events: list[object], outcome: Outcome, reason: Reason) -> None:
    assert fate(ask(streaming(*events))) == (outcome, reason)


LIMIT = {"error": {"message": "Input length (8 tokens) exceeds the maximum", "code": 400}}


@pytest.mark.parametrize("events", [[LIMIT, delta("Orchard")], [delta("Orchard"), LIMIT]])
def test_a_refusal_with_text_is_not_a_clean_one(events: list[object]) -> None:
    reply = ask(streaming(*events, "[DONE]"))
    assert fate(reply) == (Outcome.ERRORED, Reason.TEXT_AND_REFUSAL)
    assert reply.content == "Orchard"
    assert reply.refusal is not None


def test_an_error_event_by_name_is_an_error() -> None:
    async def handler(call: Call) -> None:
        await call.start_stream()
        await call.say(b'event: error\ndata: {"code": 500}\n\n')
        call.hang_up()

    assert fate(ask(handler)) == (Outcome.ERRORED, Reason.IN_STREAM_ERROR)


def test_a_server_that_keeps_the_connection_after_the_end_does_not_hold_up_the_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvcanary.probing.client.TRAILING_SECONDS", 0.05)

    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(delta("a", "stop"), "[DONE]"))
        await call.disconnected()

    assert fate(ask(handler)) == (Outcome.ANSWERED, Reason.COMPLETE)


# deadlines


def test_time_in_which_this_process_was_held_up_is_not_the_server_s() -> None:
    """The answer was there all along, and nobody looked for three times as long as the deadline."""

    async def handler(call: Call) -> None:
        await call.start_stream()
        await call.say(sse(delta("Orchard")))
        await call.say(sse(delta("", "stop"), "[DONE]"))
        call.hang_up()

    async def exchange() -> Reply:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            return await client.send(
                REQUEST,
                deadline_seconds=IMPATIENT,
                on_first_token=lambda: time.sleep(3 * IMPATIENT),
            )

    assert fate(run(exchange())) == (Outcome.ANSWERED, Reason.COMPLETE)


def test_an_answer_that_is_coming_in_does_not_hang_like_one_that_fell_silent() -> None:
    async def dribbling(call: Call) -> None:
        await call.start_stream()
        while True:
            await call.say(sse(delta("la ")))
            await asyncio.sleep(IMPATIENT / 30)

    async def silent(call: Call) -> None:
        await call.start_stream()
        await call.say(sse(delta("la ")))
        await call.disconnected()

    assert fate(ask(dribbling, deadline_seconds=2 * IMPATIENT)) == (
        Outcome.HUNG,
        Reason.STILL_ANSWERING,
    )
    assert fate(ask(silent, deadline_seconds=2 * IMPATIENT)) == (Outcome.HUNG, Reason.DEADLINE)


# bounds

SMALL = ReadLimits(response_bytes=20_000, text_chars=1_000, event_bytes=3_000)


def endless(piece: bytes) -> Handler:
    async def handler(call: Call) -> None:
        await call.start_stream()
        while True:
            await call.say(piece)

    return handler


@pytest.mark.parametrize(
    "piece",
    [
        sse(delta("x" * 50)),  # the text goes over
        sse(delta("")),  # the bytes go over
        b"x" * 500,  # one line without end
        b"data: x\n" * 50,  # one event without end
        b": keep-alive\n\n",
    ],
)
def test_a_stream_without_end_stops_at_the_bound(piece: bytes) -> None:
    reply = ask(endless(piece), limits=SMALL)
    assert fate(reply) == (Outcome.ERRORED, Reason.TOO_LARGE)
    assert len(reply.content) <= 2 * SMALL.text_chars


def test_an_event_beyond_the_bound_is_not_skipped() -> None:
    events = sse("x" * 5_000, delta("a", "stop"), "[DONE]")
    reply = ask(saying(200, events, "text/event-stream"), limits=SMALL)
    assert fate(reply) == (Outcome.ERRORED, Reason.TOO_LARGE)


def test_a_json_body_without_end_stops_at_the_bound() -> None:
    async def handler(call: Call) -> None:
        await call.start_stream("application/json")
        await call.say(b'{"a":"')
        while True:
            await call.say(b"x" * 1000)

    reply = ask(handler, limits=SMALL, stream=False)
    assert fate(reply) == (Outcome.ERRORED, Reason.TOO_LARGE)


def test_headers_without_end_stop_at_a_bound() -> None:
    async def handler(call: Call) -> None:
        await call.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            await call.say(b"X-More: " + b"x" * 1000 + b"\r\n")

    assert fate(ask(handler)) == (Outcome.ERRORED, Reason.NOT_HTTP)


# time


async def silence(call: Call) -> None:
    await call.disconnected()


async def slow_stream(call: Call) -> None:
    await call.start_stream()
    await call.say(sse(delta("so far")))
    await call.disconnected()


async def blank_lines(call: Call) -> None:
    await call.start_stream("application/json")
    await call.say(b"\r\n")
    await call.disconnected()


@pytest.mark.parametrize(
    ("handler", "content"), [(silence, ""), (slow_stream, "so far"), (blank_lines, "")]
)
def test_what_never_ends_is_hung_at_the_deadline(handler: Handler, content: str) -> None:
    reply = ask(handler, deadline_seconds=IMPATIENT)
    assert fate(reply) == (Outcome.HUNG, Reason.DEADLINE)
    assert reply.content == content


def test_a_server_that_does_not_read_is_hung_at_the_deadline() -> None:
    async def exchange() -> Reply:
        never = asyncio.Event()

        async def handler(call: Call) -> None:
            await never.wait()

        async with (
            rogue_server(handler, read_body=False) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            long = Request("kvc-1", PlainText("x" * 50_000_000), 4, "tenant-a")
            return await client.send(long, deadline_seconds=IMPATIENT)

    reply = run(exchange())
    assert fate(reply) == (Outcome.HUNG, Reason.DEADLINE)
    assert reply.send_seconds is None


def test_a_request_that_never_got_its_turn_was_not_reached() -> None:
    async def exchange() -> tuple[Reply, int]:
        async with (
            rogue_server(slow_stream) as server,
            Client(Endpoint(server.base_url, "tiny"), concurrency=1) as client,
        ):
            holding, release = asyncio.Event(), asyncio.Event()
            first = asyncio.create_task(
                client.send(
                    REQUEST, deadline_seconds=PATIENT, on_first_token=holding.set, release=release
                )
            )
            await holding.wait()
            second = await client.send(REQUEST, deadline_seconds=IMPATIENT)
            release.set()
            await first
            return second, len(server.calls)

    second, calls = run(exchange())
    assert fate(second) == (Outcome.NOT_REACHED, Reason.NO_SLOT)
    assert calls == 1


# setup


def setup_error(handler: Handler) -> KvcanaryError:
    async def exchange() -> KvcanaryError:
        async with rogue_server(handler) as server:
            endpoint = Endpoint(server.base_url, "tiny")
            async with Client(endpoint) as client:
                reply = await client.send(REQUEST, deadline_seconds=PATIENT)
            with pytest.raises(KvcanaryError) as caught:
                raise_for_setup(reply, endpoint)
            return caught.value

    return run(exchange())


@pytest.mark.parametrize(
    ("status", "body", "content_type", "error_type"),
    [
        (401, b'{"error":"theirs"}', "application/json", Unauthorized),
        (403, HTML, "text/html", Unauthorized),
        (
            404,
            b'{"error":{"message":"The model `theirs` does not exist."}}',
            "application/json",
            UnknownModel,
        ),
        (404, b'{"detail":"Not Found"}', "application/json", NotAnLLMServer),
        (404, HTML, "text/html", NotAnLLMServer),
        (200, HTML, "text/html", NotAnLLMServer),
        (302, b"", "text/html", NotAnLLMServer),
        (200, b"\x00theirs", "application/octet-stream", NotAnLLMServer),
    ],
)
def test_what_means_that_the_run_cannot_take_place(
    status: int, body: bytes, content_type: str, error_type: type[KvcanaryError]
) -> None:
    error = setup_error(saying(status, body, content_type))
    assert type(error) is error_type
    message = str(error)
    assert message.startswith("POST http://127.0.0.1:")
    assert f"HTTP {status}" in message
    assert "theirs" not in message
    assert "Welcome" not in message


def test_an_unreachable_host_means_that_the_run_cannot_take_place() -> None:
    endpoint = Endpoint("http://nohost.invalid/v1", "tiny")
    reply = ask_at(endpoint.base_url)
    with pytest.raises(Unreachable, match=r"nohost\.invalid.*not known.*DNS"):
        raise_for_setup(reply, endpoint)


@pytest.mark.parametrize("status", [400, 413, 429, 500, 503])
def test_other_replies_do_not_end_the_run(status: int) -> None:
    reply = ask(saying(status, b'{"error":{"message":"maximum context length is 9"}}'))
    raise_for_setup(reply, Endpoint("http://127.0.0.1/v1", "tiny"))


# metadata


def fetch(
    handler: Handler, check: Callable[[Client, str], Awaitable[None]], *, path: str = ""
) -> None:
    async def exchange() -> None:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            await check(client, server.base_url + path)

    run(exchange())


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (saying(200, b"{not json"), Reason.NOT_JSON),
        (saying(200, b"[" * 9_000), Reason.NOT_JSON),
        (saying(200, b""), Reason.EMPTY_BODY),
        (saying(200, HTML, "text/html"), Reason.HTML),
        (saying(200, b'"' + b"x" * 20_000 + b'"'), Reason.TOO_LARGE),
        (saying(302, b""), Reason.REDIRECT),
        (saying(401, b"{}"), Reason.UNAUTHORIZED),
        (saying(404, b"{}"), Reason.PATH_NOT_FOUND),
        (saying(400, b"{}"), Reason.CLIENT_ERROR),
        (saying(500, b"{}"), Reason.SERVER_ERROR),
        (silence, Reason.DEADLINE),
        (endless(b"x" * 500), Reason.TOO_LARGE),
    ],
)
def test_metadata_that_cannot_be_had(handler: Handler, reason: Reason) -> None:
    async def check(client: Client, url: str) -> None:
        deadline = IMPATIENT if reason is Reason.DEADLINE else PATIENT
        got = await client.get_json(
            url, deadline_seconds=deadline, max_bytes=10_000, with_key=False
        )
        assert (got.value, got.reason) == (None, reason)

    fetch(handler, check)


def test_metadata_from_nowhere() -> None:
    async def check(client: Client, _: str) -> None:
        got = await client.get_json("http://nohost.invalid/v1/models", with_key=False)
        assert (got.status, got.reason) == (None, Reason.UNKNOWN_HOST)

    fetch(silence, check)


@pytest.mark.parametrize(
    "url",
    [
        "grpc://worker:9000",
        "worker:9000",
        "http://a b/",
        "http://\u2603.example/",
        "http://999.1.1.1/",
        "http://worker:99999/",
        "http://",
        "",
        "http://u:p@w/",
    ],
)
def test_a_url_from_a_server_that_is_none_raises_nothing(url: str) -> None:
    async def check(client: Client, _: str) -> None:
        got = await client.get_json(url, with_key=False)
        assert (got.value, got.reason) == (None, Reason.NOT_A_URL)

    fetch(silence, check)


def test_metadata_is_fetched_and_in_no_repr() -> None:
    async def handler(call: Call) -> None:
        assert call.method == "GET"
        assert call.path == "/v1/loads?include=core,memory"
        await call.answer(200, b'{"api_key": "theirs"}')

    async def check(client: Client, url: str) -> None:
        got = await client.get_json(url, with_key=False)
        assert got.value == {"api_key": "theirs"}
        assert got.status == 200
        assert "theirs" not in repr(got)

    fetch(handler, check, path="/loads?include=core,memory")


def test_a_file_of_authorities_that_is_none(tmp_path: Path) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("nothing")
    for file in (bad, tmp_path / "missing.pem"):
        with pytest.raises(KvcanaryError, match="certificate authorities"):
            Client(Endpoint("https://127.0.0.1/v1", "tiny", ca_file=str(file)))

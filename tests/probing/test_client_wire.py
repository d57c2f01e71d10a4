"""What goes over the wire: bodies, headers, connections, TLS, memory, and letting go."""

import asyncio
import json
import socket
import ssl
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kvcanary.errors import UsageError
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import (
    PIECE_BYTES,
    Api,
    Endpoint,
    Identity,
    PlainText,
    Request,
    SecretKey,
    body_of,
)
from kvcanary.probing.outcome import Outcome, Reason, Reply
from tests.probing.rogue_server import Call, delta, rogue_server, run, sse, usage

PATIENT = 60.0
REQUEST = Request("kvc-3f9a-017", PlainText("hello"), 4, "tenant-a")
ANSWER = json.dumps(
    {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}
).encode()


async def answer(call: Call) -> None:
    await call.answer(200, ANSWER)


async def stream_answer(call: Call) -> None:
    await call.start_chunked()
    await call.chunk(sse(delta("fine", "stop"), usage(), "[DONE]"))
    await call.chunk(b"")


class Pieces:
    """A long text in pieces that are made on the way and counted while they live."""

    def __init__(self, count: int, size: int = 300_000) -> None:
        self.count = count
        self.size_bytes = count * size
        self._piece = size
        self.live_bytes = 0
        self.most_live_bytes = 0

    def pieces(self) -> Iterator[bytearray]:
        for number in range(self.count):
            piece = _Piece(b"%c" % (97 + number % 26) * self._piece)
            self.live_bytes += self._piece
            self.most_live_bytes = max(self.most_live_bytes, self.live_bytes)
            weakref.finalize(piece, self._gone)
            yield piece
            del piece  # what lives on lives on in the client

    def _gone(self) -> None:
        self.live_bytes -= self._piece


class _Piece(bytearray):
    """A bytearray that can be watched."""


def exchange_with(endpoint_options: dict[str, Any], request: Request) -> tuple[Reply, Call]:
    async def exchange() -> tuple[Reply, Call]:
        async with rogue_server(answer) as server:
            endpoint = Endpoint(server.base_url, "tiny", **endpoint_options)
            async with Client(endpoint) as client:
                reply = await client.send(request, deadline_seconds=PATIENT)
            return reply, server.calls[0]

    return run(exchange())


# bodies


def test_a_chat_request() -> None:
    reply, call = exchange_with({}, REQUEST)
    assert reply.outcome is Outcome.ANSWERED
    assert (call.method, call.path) == ("POST", "/v1/chat/completions")
    assert call.fields == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": "tenant-a",
    }
    assert call.headers["x-request-id"] == "kvc-3f9a-017"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["cache-control"] == "no-cache"


def test_a_completion_request_with_all_options() -> None:
    request = Request("a", PlainText("hello"), 4, "b", ignore_eos=True, stop=("\n", "END"))
    _, call = exchange_with({"api": Api.COMPLETIONS, "stream": False}, request)
    assert call.path == "/v1/completions"
    assert call.fields == {
        "model": "tiny",
        "prompt": "hello",
        "max_tokens": 4,
        "temperature": 0,
        "stream": False,
        "user": "b",
        "ignore_eos": True,
        "stop": ["\n", "END"],
    }


@pytest.mark.parametrize("text", ["", 'naïve "quotes" \\ \n\x00 🐤', "x" * (3 * PIECE_BYTES + 7)])
def test_the_length_is_exact_and_the_body_is_json(text: str) -> None:
    _, call = exchange_with({}, Request("a", PlainText(text), 4, "b"))
    assert call.fields["messages"][0]["content"] == text
    assert int(call.headers["content-length"]) == len(call.body)
    assert "transfer-encoding" not in call.headers


def test_a_body_in_pieces_is_one_json_text() -> None:
    _, call = exchange_with({}, Request("a", Pieces(15), 4, "b"))
    assert len(call.fields["messages"][0]["content"]) == 4_500_000
    assert int(call.headers["content-length"]) == len(call.body)


def test_fields_that_look_like_the_text_do_not_confuse_the_body() -> None:
    endpoint = Endpoint("http://127.0.0.1/v1", 'm"}], "prompt": "x')
    body = body_of(endpoint, Request("a", PlainText("text"), 4, '{"content": ""}'))
    fields = json.loads(b"".join(body.pieces()))
    assert fields["model"] == 'm"}], "prompt": "x'
    assert fields["user"] == '{"content": ""}'
    assert fields["messages"][0]["content"] == "text"


@pytest.mark.parametrize("declared", [299_999, 300_001, 0])
def test_a_text_whose_size_is_wrong_is_our_fault_and_says_so(declared: int) -> None:
    text = Pieces(1)
    text.size_bytes = declared

    async def exchange() -> None:
        async with (
            rogue_server(answer) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            with pytest.raises(ValueError, match=f"declared {declared} bytes"):
                await client.send(Request("a", text, 4, "b"), deadline_seconds=PATIENT)

    run(exchange())


def test_many_long_bodies_in_flight_are_never_held_whole() -> None:
    texts = [Pieces(15) for _ in range(32)]

    async def exchange() -> list[Reply]:
        all_here = asyncio.Barrier(32)

        async def handler(call: Call) -> None:
            await all_here.wait()  # nobody reads before all have filled the sockets' buffers
            left = int(call.headers["content-length"])
            while left:
                left -= len(await call.reader.read(min(left, 1_000_000)))
            await call.answer(200, ANSWER)

        async with (
            rogue_server(handler, read_body=False) as server,
            Client(Endpoint(server.base_url, "tiny"), concurrency=32) as client,
        ):
            return await asyncio.gather(
                *(
                    client.send(Request(f"r{n}", text, 4, "b"), deadline_seconds=PATIENT)
                    for n, text in enumerate(texts)
                )
            )

    replies = run(exchange())
    assert [reply.outcome for reply in replies] == [Outcome.ANSWERED] * 32
    # One piece on its way and one being made, of the fifteen of each body.
    assert max(text.most_live_bytes for text in texts) <= 2 * 300_000


# tokens and time


def test_the_first_token_is_told_once_and_timed_from_both_ends() -> None:
    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(delta(role="assistant")))  # no text yet
        await call.chunk(sse(delta(reasoning="hm")))
        await call.chunk(sse(delta("fine", "stop"), "[DONE]"))
        await call.chunk(b"")

    async def exchange() -> tuple[Reply, int]:
        told: list[None] = []
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            reply = await client.send(
                REQUEST, deadline_seconds=PATIENT, on_first_token=lambda: told.append(None)
            )
            return reply, len(told)

    reply, told = run(exchange())
    assert told == 1
    assert reply.send_seconds is not None
    assert reply.first_token_seconds is not None
    assert reply.first_token_from_start_seconds is not None
    from_sent = reply.first_token_from_start_seconds - reply.send_seconds
    assert reply.first_token_seconds == pytest.approx(from_sent)
    assert reply.total_seconds >= reply.first_token_from_start_seconds > 0


def test_a_stream_without_text_has_no_first_token() -> None:
    async def handler(call: Call) -> None:
        await call.answer(200, sse(delta("", "stop"), "[DONE]"), "text/event-stream")

    async def exchange() -> Reply:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            return await client.send(REQUEST, deadline_seconds=PATIENT)

    reply = run(exchange())
    assert reply.outcome is Outcome.ANSWERED
    assert reply.first_token_seconds is None
    assert reply.first_token_from_start_seconds is None


# letting go


def test_a_held_stream_is_released_and_the_server_sees_it() -> None:
    async def exchange() -> Reply:
        gone = asyncio.Event()

        async def handler(call: Call) -> None:
            await call.start_chunked()
            await call.chunk(sse(delta("so far")))
            await call.disconnected()
            gone.set()

        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            holding, release = asyncio.Event(), asyncio.Event()
            sending = asyncio.create_task(
                client.send(
                    REQUEST, deadline_seconds=PATIENT, on_first_token=holding.set, release=release
                )
            )
            await holding.wait()
            assert not gone.is_set()
            release.set()
            await gone.wait()
            return await sending

    reply = run(exchange())
    assert (reply.outcome, reply.reason) == (Outcome.ABORTED, Reason.RELEASED)
    assert reply.content == "so far"


def test_a_release_while_the_body_is_being_sent() -> None:
    async def exchange() -> Reply:
        release = asyncio.Event()

        async def handler(call: Call) -> None:
            release.set()
            await call.disconnected()

        async with (
            rogue_server(handler, read_body=False) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            long = Request("a", Pieces(200), 4, "b")
            return await client.send(long, deadline_seconds=PATIENT, release=release)

    assert run(exchange()).outcome is Outcome.ABORTED


def test_a_release_before_the_start_sends_nothing() -> None:
    async def exchange() -> tuple[Reply, int]:
        release = asyncio.Event()
        release.set()
        async with (
            rogue_server(answer) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            reply = await client.send(REQUEST, deadline_seconds=PATIENT, release=release)
            return reply, len(server.calls)

    reply, calls = run(exchange())
    assert reply.outcome is Outcome.ABORTED
    assert calls == 0


def test_a_release_after_the_end_changes_nothing() -> None:
    async def exchange() -> Reply:
        release = asyncio.Event()
        async with (
            rogue_server(stream_answer) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            reply = await client.send(REQUEST, deadline_seconds=PATIENT, release=release)
            release.set()
            return reply

    assert run(exchange()).outcome is Outcome.ANSWERED


def test_a_release_after_the_done_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcanary.probing.client.TRAILING_SECONDS", PATIENT)

    async def handler(call: Call) -> None:
        await call.start_chunked()
        await call.chunk(sse(delta("fine", "stop"), "[DONE]"))
        await call.disconnected()

    async def exchange() -> Reply:
        release = asyncio.Event()
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            return await client.send(
                REQUEST, deadline_seconds=PATIENT, on_first_token=release.set, release=release
            )

    reply = run(exchange())
    assert (reply.outcome, reply.reason) == (Outcome.ANSWERED, Reason.COMPLETE)


def test_a_cancellation_passes_through() -> None:
    async def exchange() -> None:
        called = asyncio.Event()

        async def handler(call: Call) -> None:
            called.set()
            await call.disconnected()

        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            sending = asyncio.create_task(client.send(REQUEST, deadline_seconds=PATIENT))
            await called.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    run(exchange())


# connections


def test_a_connection_is_used_again_and_kept_alive_by_tcp() -> None:
    async def exchange() -> tuple[int, list[int]]:
        async with (
            rogue_server(stream_answer) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            for _ in range(3):
                await client.send(REQUEST, deadline_seconds=PATIENT)
            return server.connections, _keepalive_of_sockets_to(server.port)

    connections, keepalive = run(exchange())
    assert connections == 1
    if keepalive:  # only where the system lists open files
        assert keepalive == [1]


def _keepalive_of_sockets_to(port: int) -> list[int]:
    found = []
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            with socket.socket(fileno=socket.dup(int(entry.name))) as copy:
                if copy.getpeername()[1:2] == (port,):
                    found.append(copy.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        except OSError:
            continue
    return found


def test_no_cookie_of_one_tenant_reaches_another_request() -> None:
    async def handler(call: Call) -> None:
        assert "cookie" not in call.headers
        await call.answer(200, ANSWER, extra="Set-Cookie: route=worker-1; Path=/\r\n")

    async def exchange() -> list[Outcome]:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            return [
                (await client.send(REQUEST, deadline_seconds=PATIENT)).outcome for _ in range(2)
            ]

    assert run(exchange()) == [Outcome.ANSWERED] * 2


@pytest.mark.parametrize("trust_env", [False, True])
def test_a_proxy_of_the_environment_is_used_only_on_request(
    monkeypatch: pytest.MonkeyPatch, *, trust_env: bool
) -> None:
    async def exchange() -> tuple[Reply, int]:
        async with rogue_server(answer) as proxy:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            endpoint = Endpoint("http://nohost.invalid/v1", "tiny", trust_env=trust_env)
            async with Client(endpoint) as client:
                reply = await client.send(REQUEST, deadline_seconds=PATIENT)
            return reply, len(proxy.calls)

    reply, calls = run(exchange())
    if trust_env:
        assert (reply.outcome, calls) == (Outcome.ANSWERED, 1)
    else:
        assert (reply.reason, calls) == (Reason.UNKNOWN_HOST, 0)


def test_hosts_that_the_environment_excepts_go_past_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def exchange() -> tuple[Reply, int]:
        async with rogue_server(answer) as proxy, rogue_server(answer) as server:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            endpoint = Endpoint(server.base_url, "tiny", trust_env=True)
            async with Client(endpoint) as client:
                reply = await client.send(REQUEST, deadline_seconds=PATIENT)
            return reply, len(proxy.calls)

    reply, calls = run(exchange())
    assert (reply.outcome, calls) == (Outcome.ANSWERED, 0)


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def ask_over_tls(authority: trustme.CA, ca_file: str | None, host: str = "127.0.0.1") -> Reply:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def exchange() -> Reply:
        async with rogue_server(stream_answer, tls=context) as server:
            endpoint = Endpoint(f"https://{host}:{server.port}/v1", "tiny", ca_file=ca_file)
            async with Client(endpoint) as client:
                return await client.send(REQUEST, deadline_seconds=PATIENT)

    return run(exchange())


def test_a_certificate_of_a_given_authority_is_fine(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    reply = ask_over_tls(authority, str(ca_file))
    assert reply.outcome is Outcome.ANSWERED
    assert reply.content == "fine"


def test_a_certificate_of_an_unknown_authority_is_a_tls_error(authority: trustme.CA) -> None:
    reply = ask_over_tls(authority, None)
    assert (reply.outcome, reply.reason) == (Outcome.NOT_REACHED, Reason.TLS)


def test_a_certificate_for_another_host_is_a_tls_error(
    authority: trustme.CA, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    reply = ask_over_tls(authority, str(ca_file), host="localhost")
    assert (reply.outcome, reply.reason) == (Outcome.NOT_REACHED, Reason.TLS)


def test_https_to_a_server_without_tls_is_a_tls_error() -> None:
    async def exchange() -> Reply:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(Endpoint(f"https://127.0.0.1:{port}/v1", "tiny")) as client:
            return await client.send(REQUEST, deadline_seconds=PATIENT)

    assert run(exchange()).reason is Reason.TLS


def test_a_connection_dropped_during_a_long_prefill_is_no_tls_error(
    authority: trustme.CA, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def handler(call: Call) -> None:
        call.hang_up(reset=True)

    async def exchange() -> Reply:
        async with rogue_server(handler, tls=context) as server:
            endpoint = Endpoint(server.base_url, "tiny", ca_file=str(ca_file))
            async with Client(endpoint) as client:
                return await client.send(REQUEST, deadline_seconds=PATIENT)

    reply = run(exchange())
    assert (reply.outcome, reply.reason) == (Outcome.NOT_REACHED, Reason.IDLE_RESET)


# what is refused before anything is sent


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host/v1",
        "http://hunter2@host/v1",
        "https://host/v1?key=hunter2",
        "https://host/v1#hunter2",
        "ftp://host/hunter2",
        "host:8000/hunter2",
        "http:///hunter2",
        "http://host:hunter2/v1",
        "http://[hunter2/v1",
        "http://two hunter2/v1",
        "http://host/hunter2\x1b/v1",
        "http://hunter2/v1/chat/completions",
        "",
    ],
)
def test_urls_that_are_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint(url, "tiny")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://host/v1/", "http://host/v1"),
        (" https://host:8443/gateway/v1// ", "https://host:8443/gateway/v1"),
        ("http://[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_urls_are_kept_as_given_but_for_the_slash(given: str, kept: str) -> None:
    assert Endpoint(given, "tiny").base_url == kept


@pytest.mark.parametrize("name", ["x y", "", "Authorization", "content-length", "x\r\nhost"])
def test_headers_that_are_refused(name: str) -> None:
    headers = ((name, SecretKey("Bearer hunter2")),)
    with pytest.raises(UsageError) as caught:
        Endpoint("http://host/v1", "tiny", headers=headers)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError):
        Identity(headers=headers)


def test_requests_that_are_refused() -> None:
    with pytest.raises(UsageError):
        Request("two words", PlainText(""), 4, "b")
    with pytest.raises(UsageError):
        Request("a", PlainText(""), 0, "b")
    with pytest.raises(UsageError):
        Endpoint("http://host/v1", "")
    with pytest.raises(UsageError):
        Client(Endpoint("http://host/v1", "tiny"), concurrency=0)
    with pytest.raises(UsageError):
        Client(Endpoint("http://\u2603.example/v1", "tiny"))

"""The key goes where it is due and shows nowhere, and no server's text does."""

import asyncio
import copy
import dataclasses
import pickle
import traceback
from collections.abc import Iterator

import pytest

from kvcanary.errors import UsageError
from kvcanary.probing.client import Client, JsonReply
from kvcanary.probing.endpoint import Endpoint, PlainText, Request, SecretKey
from kvcanary.probing.outcome import Reply
from tests.probing.rogue_server import Call, delta, rogue_server, run, sse

SECRET = "sk-hunter2-0123"
OTHER_SECRET = "team-swordfish"
REQUEST = Request("kvc-1", PlainText("hello"), 4, "tenant-a")


def endpoint_at(base_url: str) -> Endpoint:
    return Endpoint(
        base_url,
        "tiny",
        api_key=SecretKey(SECRET),
        headers=(("X-Team-Key", SecretKey(OTHER_SECRET)),),
    )


def shows_no_secret(text: str) -> bool:
    return "hunter2" not in text and "swordfish" not in text


async def no_content(call: Call) -> None:
    await call.answer(200, b"{}")


def test_the_key_is_sent_with_requests() -> None:
    async def exchange() -> dict[str, str]:
        async with (
            rogue_server(no_content) as server,
            Client(endpoint_at(server.base_url)) as client,
        ):
            await client.send(REQUEST, deadline_seconds=60)
            return server.calls[0].headers

    headers = run(exchange())
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert headers["x-team-key"] == OTHER_SECRET


@pytest.mark.parametrize("with_key", [True, False])
def test_the_key_is_sent_with_metadata_only_where_it_is_due(*, with_key: bool) -> None:
    async def exchange() -> tuple[JsonReply, dict[str, str]]:
        async with (
            rogue_server(no_content) as front,
            rogue_server(no_content) as worker,
            Client(endpoint_at(front.base_url)) as client,
        ):
            await client.send(REQUEST, deadline_seconds=60)
            got = await client.get_json(f"{worker.base_url}/models", with_key=with_key)
            return got, worker.calls[0].headers

    got, headers = run(exchange())
    assert got.value == {}
    assert ("authorization" in headers) is with_key
    assert ("x-team-key" in headers) is with_key


def test_no_key_no_header() -> None:
    async def exchange() -> dict[str, str]:
        async with (
            rogue_server(no_content) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            await client.send(REQUEST, deadline_seconds=60)
            return server.calls[0].headers

    assert "authorization" not in run(exchange())


def test_no_repr_shows_the_key() -> None:
    endpoint = endpoint_at("http://127.0.0.1/v1")
    key = endpoint.api_key
    shown = f"{key!r} {key!s} {key} {endpoint!r} {endpoint} {Client(endpoint)!r} {[key]}"
    assert shows_no_secret(shown)
    assert "SecretKey(***)" in shown


def test_a_key_is_compared_and_copied_and_never_pickled() -> None:
    key = SecretKey(SECRET)
    assert key == SecretKey(SECRET)
    assert hash(key) == hash(SecretKey(SECRET))
    assert key != SecretKey(SECRET + "4")
    assert key != SECRET
    assert copy.copy(key) is key
    assert dataclasses.asdict(endpoint_at("http://h/v1"))["api_key"] == key
    with pytest.raises(TypeError):
        pickle.dumps(key)


@pytest.mark.parametrize("key", ["", "two words\n", " lead", "ключ"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        SecretKey(key)
    if key:
        assert key not in str(caught.value)


class FailsHalfWay:
    """A prompt whose second piece cannot be made: a fault of ours, inside the HTTP libraries."""

    size_bytes = 1000

    def pieces(self) -> Iterator[bytes]:
        yield b"x"
        raise LookupError("no second piece")


def shown_with_locals(error: BaseException) -> str:
    """A traceback as ``pytest --showlocals`` and error trackers print it."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def test_a_traceback_with_locals_shows_our_fault_and_no_key() -> None:
    async def exchange() -> str:
        async with (
            rogue_server(no_content) as server,
            Client(endpoint_at(server.base_url)) as client,
        ):
            try:
                await client.send(Request("a", FailsHalfWay(), 4, "b"), deadline_seconds=60)
            except LookupError as error:
                return shown_with_locals(error)
            raise AssertionError("nothing was raised")

    shown = run(exchange())
    assert "no second piece" in shown
    assert "in pieces" in shown  # the frame that failed is still there
    assert "httpcore" not in shown  # frames whose locals hold headers are not
    assert "h11" not in shown
    assert shows_no_secret(shown)


def test_a_cancellation_in_the_middle_shows_no_key() -> None:
    async def exchange() -> str:
        called = asyncio.Event()

        async def handler(call: Call) -> None:
            called.set()
            await call.disconnected()

        async with (
            rogue_server(handler) as server,
            Client(endpoint_at(server.base_url)) as client,
        ):
            sending = asyncio.create_task(client.send(REQUEST, deadline_seconds=60))
            await called.wait()
            sending.cancel()
            try:
                await sending
            except asyncio.CancelledError as error:
                return shown_with_locals(error)
            raise AssertionError("nothing was raised")

    shown = run(exchange())
    assert "httpcore" not in shown
    assert shows_no_secret(shown)


def test_what_a_server_says_is_in_no_repr() -> None:
    async def handler(call: Call) -> None:
        event = delta("theirs", "stop", reasoning="theirs", refusal="theirs")
        event |= {"id": "theirs", "model": "theirs", "system_fingerprint": "theirs"}
        await call.answer(200, sse(event, "[DONE]"), "text/event-stream")

    async def exchange() -> Reply:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            return await client.send(REQUEST, deadline_seconds=60)

    reply = run(exchange())
    assert [text.reveal() for text in reply.texts] == ["theirs", "theirs", "theirs"]
    assert reply.response_id == reply.model == reply.system_fingerprint == "theirs"
    assert "theirs" not in repr(reply)


def test_names_from_a_server_are_bounded_and_printable() -> None:
    async def handler(call: Call) -> None:
        event = delta("a", "stop") | {"id": "i" * 5000, "model": "a\x1b[31m\nb"}
        await call.answer(200, sse(event, "[DONE]"), "text/event-stream")

    async def exchange() -> Reply:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            return await client.send(REQUEST, deadline_seconds=60)

    reply = run(exchange())
    assert reply.response_id == "i" * 256
    assert reply.model == "a[31mb"

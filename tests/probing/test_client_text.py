"""Metadata that is plain text: the same bounds as for JSON."""

from collections.abc import Awaitable, Callable

import pytest

from kvcanary.probing.client import Client, TextReply
from kvcanary.probing.endpoint import Endpoint, SecretKey
from kvcanary.probing.outcome import Reason
from tests.probing.rogue_server import Call, Handler, rogue_server, run

IMPATIENT = 0.1


def saying(status: int, body: bytes, content_type: str = "text/plain") -> Handler:
    async def handler(call: Call) -> None:
        await call.answer(status, body, content_type)

    return handler


async def silence(call: Call) -> None:
    await call.disconnected()


async def endless(call: Call) -> None:
    await call.start_stream("text/plain")
    while True:
        await call.say(b"x" * 500)


def ask(handler: Handler, get: Callable[[Client, str], Awaitable[TextReply]]) -> TextReply:
    async def exchange() -> TextReply:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny", api_key=SecretKey("sk-1"))) as client,
        ):
            return await get(client, f"{server.base_url}/text")

    return run(exchange())


async def plainly(client: Client, url: str) -> TextReply:
    return await client.get_text(url, with_key=False)


def test_a_text_is_fetched_and_in_no_repr() -> None:
    async def handler(call: Call) -> None:
        assert (call.method, call.headers["accept"]) == ("GET", "text/plain")
        await call.answer(200, 'a{x="naïve theirs"} 1\n'.encode(), "text/plain; version=0.0.4")

    got = ask(handler, plainly)
    assert got == TextReply(200, 'a{x="naïve theirs"} 1\n', None)
    assert "theirs" not in repr(got)


def test_what_is_no_utf_8_is_replaced() -> None:
    assert ask(saying(200, b"a\xff 1"), plainly).text == "a\ufffd 1"


@pytest.mark.parametrize("with_key", [True, False])
def test_the_key_is_sent_only_where_it_is_due(*, with_key: bool) -> None:
    seen: list[bool] = []

    async def handler(call: Call) -> None:
        seen.append("authorization" in call.headers)
        await call.answer(200, b"a 1")

    async def get(client: Client, url: str) -> TextReply:
        return await client.get_text(url, with_key=with_key)

    ask(handler, get)
    assert seen == [with_key]


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (saying(200, b" \n"), Reason.EMPTY_BODY),
        (saying(200, b"<html>", "text/html"), Reason.HTML),
        (saying(200, b"x" * 10_001), Reason.TOO_LARGE),
        (saying(302, b"a 1"), Reason.REDIRECT),
        (saying(403, b"a 1"), Reason.UNAUTHORIZED),
        (saying(501, b"a 1"), Reason.PATH_NOT_FOUND),
        (saying(400, b"a 1"), Reason.CLIENT_ERROR),
        (saying(503, b"a 1"), Reason.SERVER_ERROR),
        (silence, Reason.DEADLINE),
        (endless, Reason.TOO_LARGE),
    ],
)
def test_a_text_that_cannot_be_had(handler: Handler, reason: Reason) -> None:
    async def get(client: Client, url: str) -> TextReply:
        seconds = IMPATIENT if reason is Reason.DEADLINE else 60
        return await client.get_text(
            url, deadline_seconds=seconds, max_bytes=10_000, with_key=False
        )

    got = ask(handler, get)
    assert (got.text, got.reason) == (None, reason)


def test_a_text_from_nowhere() -> None:
    async def nowhere(client: Client, _: str) -> TextReply:
        return await client.get_text("http://nohost.invalid/metrics", with_key=False)

    async def no_url(client: Client, _: str) -> TextReply:
        return await client.get_text("grpc://worker:9000", with_key=False)

    assert ask(silence, nowhere).reason is Reason.UNKNOWN_HOST
    assert ask(silence, no_url).reason is Reason.NOT_A_URL

"""A fault of our own while a server's text is in hand: the traceback says where, and shows nothing of it."""

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from kvcanary.probing import answer
from kvcanary.probing import sse as sse_module
from kvcanary.probing.client import Client, body
from kvcanary.probing.client import exchange as exchange_module
from kvcanary.probing.endpoint import Endpoint, PlainText, Request, SecretKey
from kvcanary.probing.server_text import ServerText
from kvcanary.probing.tracebacks import Unseen
from tests.probing.rogue_server import Call, delta, rogue_server, run, sse, usage

THEIRS = "Zwiebelfisch-0815"
KEY = "sk-hunter2-0123"
REQUEST = Request("kvc-1", PlainText("hello"), 4, "tenant-a")


def fails(*_: object, **__: object) -> Any:
    raise LookupError("a fault of ours")


async def theirs(call: Call) -> None:
    await call.start_stream()
    await call.say(
        sse(delta(THEIRS, reasoning=THEIRS), THEIRS, delta(finish="stop"), usage(), "[DONE]")
    )
    call.hang_up()


def shown(error: BaseException) -> str:
    """A traceback as ``pytest --showlocals`` and error trackers print it."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (answer, "whole_number"),
        (answer, "error_in"),
        (answer, "_gather"),
        (answer.Answer, "_read_message"),
        (answer, "_parsed_object"),
        (sse_module.SseParser, "_dispatch"),
        (body, "kind_of"),
        (exchange_module, "judge"),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_wherever_it_fails_no_text_and_no_key_is_shown(
    where: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exchange() -> str:
        endpoint = Endpoint("http://127.0.0.1:1/v1", "tiny", api_key=SecretKey(KEY))
        async with rogue_server(theirs) as server:
            endpoint = Endpoint(server.base_url, "tiny", api_key=SecretKey(KEY))
            async with Client(endpoint) as client:
                monkeypatch.setattr(where, name, fails)
                try:
                    await client.send(REQUEST, deadline_seconds=60)
                except LookupError as error:
                    return shown(error)
                finally:
                    monkeypatch.undo()
        raise AssertionError("it did not fail")

    text = run(exchange())
    assert "a fault of ours" in text
    assert "in fails" in text, "the place is still told"
    assert THEIRS not in text
    assert KEY not in text


def test_frames_in_between_are_emptied_with_their_causes() -> None:
    def inner(text: str) -> None:
        raise ValueError("inner") from KeyError(len(text))

    def outer(text: str) -> None:
        try:
            inner(text + "!")
        except ValueError as error:
            raise LookupError("outer") from error

    try:
        with Unseen():
            outer(THEIRS)
    except LookupError as error:
        text = shown(error)
    assert "in inner" in text
    assert "in outer" in text
    assert THEIRS not in text


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format, lambda t: f"{[t]}"])
def test_a_server_s_text_shows_itself_only_when_asked(show: Callable[[object], str]) -> None:
    text = ServerText(THEIRS)
    assert THEIRS not in show(text)
    assert (text.reveal(), text == THEIRS, THEIRS in text, len(text)) == (THEIRS, True, True, 17)
    assert not ServerText()
    assert ServerText(" \n").is_blank


def test_the_libraries_log_nothing_of_what_is_sent_and_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(call: Call) -> None:
        await call.answer(200, b"{}", extra=f"Set-Cookie: {THEIRS}\r\n")

    async def exchange() -> None:
        async with rogue_server(handler) as server:
            endpoint = Endpoint(server.base_url, "tiny", api_key=SecretKey(KEY))
            async with Client(endpoint) as client:
                await client.send(REQUEST, deadline_seconds=60)
                await client.get_json(f"{server.base_url}/models", with_key=True)
            logging.getLogger("httpx").info("others may still log")

    with caplog.at_level(logging.DEBUG):
        run(exchange())
    assert THEIRS not in caplog.text
    assert KEY not in caplog.text
    assert "HTTP Request" not in caplog.text
    assert "others may still log" in caplog.text

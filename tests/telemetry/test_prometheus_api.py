"""What calls itself Prometheus may be anything: bounded, strict, and no secret of ours in sight."""

import asyncio
import io
import json
import logging
import math
import re
import ssl
import threading
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.deployment.target import PrometheusServer
from kvcanary.errors import UsageError
from kvcanary.probing.endpoint import SecretKey
from kvcanary.probing.outcome import Reason
from kvcanary.telemetry import prometheus, prometheus_api
from kvcanary.telemetry.prometheus import Prometheus
from kvcanary.telemetry.prometheus_api import MAX_POINTS, PrometheusApi, Row, Rows
from tests.probing.rogue_server import Call, Handler, rogue_server, run
from tests.telemetry.real_prometheus import free_port

SECRET, OTHER_SECRET = "token-hunter2", "tenant-swordfish"


def server_at(base_url: str, ca_file: str | None = None) -> PrometheusServer:
    return PrometheusServer(
        base_url.removesuffix("/v1"),
        selector=(("job", "llm"),),
        token=SecretKey(SECRET),
        headers=(("X-Scope-OrgID", SecretKey(OTHER_SECRET)),),
        ca_file=ca_file,
    )


def answer_of(result: object) -> bytes:
    return json.dumps({"status": "success", "data": {"result": result}}).encode()


def asked(handler: Handler, seconds: float = 60) -> tuple[Rows | Reason, list[Call]]:
    async def scene() -> tuple[Rows | Reason, list[Call]]:
        async with rogue_server(handler) as server:
            got = await PrometheusApi(server_at(server.base_url), seconds=seconds).query("up")
            return got, server.calls

    return run(scene())


def saying(body: bytes, status: int = 200, extra: str = "") -> Handler:
    async def handler(call: Call) -> None:
        await call.answer(status, body, extra=extra)

    return handler


def test_token_and_headers_go_along_and_nothing_of_the_environment_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password theirs")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    got, (call,) = asked(saying(answer_of([{"metric": {"job": "llm"}, "value": [5, "1"]}])))
    assert got == (Row({"job": "llm"}, ((5.0, 1.0),)),)
    assert call.path == "/api/v1/query?query=up"
    assert call.headers["authorization"] == f"Bearer {SECRET}"
    assert call.headers["x-scope-orgid"] == OTHER_SECRET
    assert call.headers["accept-encoding"] == "identity"


def test_vectors_and_matrices() -> None:
    rows = [
        {"metric": {}, "values": [[1, "2"], [3.5, "NaN"], [4, "+Inf"]]},
        {"metric": {"a": "b"}, "values": []},
    ]
    got, _ = asked(saying(answer_of(rows)))
    assert not isinstance(got, Reason)
    times = [at for at, _ in got[0].points]
    assert times == [1, 3.5, 4]
    assert got[0].points[0] == (1.0, 2.0)
    assert math.isnan(got[0].points[1][1])
    assert got[1].points == ()


async def drip(call: Call) -> None:
    await call.start_stream("application/json")
    while not call.writer.is_closing():
        await call.say(b" ")
        await asyncio.sleep(0.01)


async def flood(call: Call) -> None:
    await call.start_stream("application/json")
    for _ in range(20):
        await call.say(b" " * 1_000_000)


async def silence(call: Call) -> None:
    await call.disconnected()


async def hang_up(call: Call) -> None:
    call.hang_up(reset=True)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (saying(b"", 302, "Location: http://127.0.0.1:1/theirs\r\n"), Reason.REDIRECT),
        (saying(b"secret text", 401), Reason.UNAUTHORIZED),
        (saying(b"", 404), Reason.PATH_NOT_FOUND),
        (saying(b"{}", 422), Reason.CLIENT_ERROR),
        (saying(b"", 429), Reason.RATE_LIMITED),
        (saying(b"", 500), Reason.SERVER_ERROR),
        (saying(b"", 503), Reason.OVERLOADED),
        (saying(b""), Reason.NOT_JSON),
        (saying(b"<html>"), Reason.NOT_JSON),
        (saying(b"\x1f\x8b\x08", extra="Content-Encoding: gzip\r\n"), Reason.NOT_JSON),
        (saying(b"[" * 100_000), Reason.NOT_JSON),
        (saying(answer_of([{}])), Reason.NOT_JSON),
        (saying(answer_of("theirs")), Reason.NOT_JSON),
        (saying(answer_of([{"metric": {}, "value": [5, "many"]}])), Reason.NOT_JSON),
        (saying(answer_of([{"metric": {"a": 5}, "value": [5, "1"]}])), Reason.NOT_JSON),
        (flood, Reason.TOO_LARGE),
        (hang_up, Reason.IDLE_RESET),
    ],
)
def test_an_answer_that_is_none(handler: Handler, reason: Reason) -> None:
    got, calls = asked(handler)
    assert got is reason
    assert len(calls) == 1  # no second try, and no redirect followed


@pytest.mark.parametrize("handler", [silence, drip])
def test_an_answer_that_takes_too_long(handler: Handler) -> None:
    got, _ = asked(handler, seconds=0.3)
    assert got is Reason.DEADLINE


def test_no_thread_reads_on_after_the_deadline() -> None:
    async def scene() -> None:
        before = set(threading.enumerate())
        async with rogue_server(drip) as server:
            got = await PrometheusApi(server_at(server.base_url), seconds=0.3).query("up")
            assert got is Reason.DEADLINE
            left = set(threading.enumerate()) - before
            for thread in left:  # the server goes on all the while
                await asyncio.to_thread(thread.join, 30)
                assert not thread.is_alive()

    run(scene())


def test_a_matrix_without_bounds_is_none() -> None:
    rows = [{"metric": {}, "values": [[1, "2"]] * 50_000}] * (MAX_POINTS // 50_000 + 1)
    got, _ = asked(saying(answer_of(rows)))
    assert got is Reason.NOT_JSON


@pytest.mark.parametrize(
    ("url", "reasons"),
    [
        ("http://127.0.0.1:{port}", {Reason.CONNECTION_REFUSED}),
        ("http://no-such-host.invalid", {Reason.UNKNOWN_HOST}),
        ("https://", {Reason.NOT_A_URL}),
        ("gopher://127.0.0.1", {Reason.NOT_A_URL}),
    ],
)
def test_no_server(url: str, reasons: set[Reason]) -> None:
    server = server_at(url.format(port=free_port()))
    assert run(PrometheusApi(server).query("up")) in reasons


def test_tls_is_checked_against_the_given_authority_and_against_no_other(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    ca_file, wrong_file = tmp_path / "ca.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    other.cert_pem.write_to_path(str(wrong_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def scene(file: str | None) -> Rows | Reason:
        async with rogue_server(saying(answer_of([])), tls=context) as server:
            return await PrometheusApi(server_at(server.base_url, file)).query("up")

    assert run(scene(str(ca_file))) == ()
    for file in (str(wrong_file), None, str(tmp_path / "missing.pem")):
        assert run(scene(file)) is Reason.TLS


@pytest.mark.parametrize("handler", [saying(b"theirs"), saying(b"theirs", 500), hang_up])
def test_no_log_and_no_repr_shows_a_secret_or_a_servers_text(handler: Handler) -> None:
    out = io.StringIO()
    root = logging.getLogger()
    listener, level = logging.StreamHandler(out), root.level
    root.addHandler(listener)
    root.setLevel(logging.DEBUG)
    try:
        got, _ = asked(handler)
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
    server = server_at("http://127.0.0.1/v1")
    shown = f"{out.getvalue()} {got!r} {server!r} {PrometheusApi(server)!r}"
    for secret in ("hunter2", "swordfish", "theirs"):
        assert secret not in shown
    assert "theirs" not in repr(Row({"a": "theirs"}, ()))


def test_what_a_fault_of_ours_raises_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every exception on the way is an outcome; there is no traceback for the token to stand in."""

    def broken(_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(prometheus_api, "_rows", broken)
    got, _ = asked(saying(answer_of([])))
    assert got is Reason.NOT_JSON


@pytest.mark.parametrize("name", ["a-b", "", "1a", 'a="b",c', "é"])
def test_a_label_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name of a Prometheus label"):
        Prometheus(PrometheusServer("http://127.0.0.1", ((name, "x"),)))


PROMQL_STRING = re.compile(r'"((?:[^"\\\n]|\\[\\"n])*)"')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@given(st.text(max_size=20) | st.text('\\"n\n', max_size=8))
def test_a_value_stays_one_value(value: str) -> None:
    """Whatever stands in a selector, the query has one string there, which says the same."""
    asked = prometheus._matchers((("job", value),))
    string = PROMQL_STRING.fullmatch(asked.removeprefix("job="))
    assert string
    assert re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], string[1]) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["metric", "value", "values", "labels", "scrapeUrl", "activeTargets"]),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_no_document_raises_and_every_point_is_one(document: object) -> None:
    for rows in (prometheus_api._rows(document), prometheus_api._rows([document])):
        for row in rows or ():
            assert all(isinstance(name, str) for name in row.labels.values())
            assert all(0 <= at < prometheus_api.MAX_SECONDS for at, _ in row.points)
    for scrape in prometheus_api._scrapes({"activeTargets": document}) or ():
        assert isinstance(scrape.url, str)

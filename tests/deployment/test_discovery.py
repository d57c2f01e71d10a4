"""Discovery over real sockets: workers that do not answer, lie, redirect, and that are no business of the key."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from kvcanary.deployment import routers
from kvcanary.deployment.discovery import discover
from kvcanary.deployment.facts import Facts, Role
from kvcanary.deployment.gauge import make_gauge, used_tokens
from kvcanary.detect import capacity
from kvcanary.errors import KvcanaryError, Unauthorized, Unreachable
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, SecretKey
from tests.builders import facts, worker
from tests.engines.captures import answer
from tests.probing.rogue_server import Call, Handler, Rogue, rogue_server, run

SECRET = "sk-SECRET-0123456789"
DEADLINE = 1.0
NO_ENGINE = "nothing in its answers is of an engine that kvcanary knows"
INFO = answer("sglang-0.5.23-server_info.json")


def documents(**answers: object) -> Handler:
    """``/server_info`` and others by path with ``_`` for ``/``; anything else is 404."""

    async def handler(call: Call) -> None:
        path = call.path.partition("?")[0].strip("/").replace("/", "_")
        if path in answers:
            await call.answer(200, json.dumps(answers[path]).encode())
        else:
            await call.answer(404, b'{"detail":"Not Found"}')

    return handler


def listing(*workers: tuple[str, str]) -> dict[str, object]:
    return {"workers": [{"url": url, "worker_type": kind} for kind, url in workers]}


async def asked(
    base_url: str, context: int | None = 2_048, *, trusted: bool = False, model: str = "tiny"
) -> Facts:
    endpoint = Endpoint(base_url, model, api_key=SecretKey(SECRET))
    async with Client(endpoint) as client:
        return await discover(client, context, trust_discovered=trusted, deadline_seconds=DEADLINE)


def root(server: Rogue) -> str:
    return server.base_url.removesuffix("/v1")


def behind_a_router(
    *handlers: Handler, roles: tuple[str, ...] = ("prefill", "decode"), trusted: bool = False
) -> tuple[Facts, list[list[Call]], list[Call]]:
    """Facts of a front door that names one worker for each handler, and the calls that each had."""

    async def exchange() -> tuple[Facts, list[list[Call]], list[Call]]:
        async with rogue_server(handlers[0]) as one, rogue_server(handlers[-1]) as two:
            named = listing(*zip(roles, (root(one), root(two)), strict=True))
            async with rogue_server(documents(workers=named)) as front:
                facts = await asked(front.base_url, trusted=trusted)
                return facts, [one.calls, two.calls], front.calls

    return run(exchange())


def test_workers_that_the_router_names_are_asked() -> None:
    facts, _, _ = behind_a_router(documents(server_info=INFO))
    assert [(w.role, w.pool_tokens, w.limit_tokens) for w in facts.workers] == [
        (Role.PREFILL, 700, 693),
        (Role.DECODE, 700, 693),
    ]
    assert facts.notes == ()
    assert capacity.assessed(facts)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_key_goes_to_discovered_workers_only_if_they_are_trusted(*, trusted: bool) -> None:
    _, workers, front = behind_a_router(documents(server_info=INFO), trusted=trusted)
    assert all(call.headers["authorization"] == f"Bearer {SECRET}" for call in front)
    calls = [call for calls in workers for call in calls]
    assert {call.path for call in calls} >= {"/server_info", "/metrics"}
    assert all(("authorization" in call.headers) is trusted for call in calls)


async def silent(call: Call) -> None:
    await call.disconnected()


async def redirecting(call: Call) -> None:
    await call.answer(302, extra="Location: http://169.254.169.254/latest\r\n")


async def garbage(call: Call) -> None:
    await call.answer(200, b"\x00\xff" * 50)


async def huge(call: Call) -> None:
    await call.answer(200, b'{"a": "' + b"x" * 5_000_000 + b'"}')


async def refusing(call: Call) -> None:
    await call.answer(401)


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (silent, "no answer in time"),
        (redirecting, "HTTP 302"),
        (garbage, NO_ENGINE),
        (huge, "more than is read"),
        (refusing, "HTTP 401"),
        (documents(), "HTTP 404"),
        (documents(server_info=[]), NO_ENGINE),
        (
            documents(server_info={"max_total_num_tokens": "many"}),
            "nothing in its answers is of an engine that kvcanary knows",
        ),
        (
            documents(server_info={"max_total_num_tokens": -7}),
            "nothing in its answers is of an engine that kvcanary knows",
        ),
    ],
)
def test_a_worker_that_tells_nothing_is_unknown_and_never_capacity(
    handler: Handler, why: str
) -> None:
    facts, calls, _ = behind_a_router(documents(server_info=INFO), handler)
    assert [w.pool_tokens for w in facts.workers] == [700, None]
    assert facts.decode_pool_tokens is None
    assert not capacity.assessed(facts)
    (note,) = facts.notes
    assert note.startswith("The decode worker http://127.0.0.1:")
    assert f"({why})" in note
    paths = [call.path for call in calls[1]]
    assert len(paths) == len(set(paths)), "a redirect is not followed, nothing is asked twice"


STRANGE = [
    {"url": "file:///etc/passwd", "worker_type": "decode"},
    {"url": "http://user:hunter2@127.0.0.1:9", "worker_type": "decode"},
    {"url": "http://127.0.0.1:9/?token=hunter2", "worker_type": "decode"},
    {"url": "http://127.0.0.1:9/\x1b[31m", "worker_type": "decode"},
    {"url": "http://127.0.0.1:9/\u202egnp", "worker_type": "decode"},
    {"url": "http://" + "x" * 1_000_000, "worker_type": "decode"},
    {"url": "http://[::1", "worker_type": "decode"},
    {"url": None, "worker_type": "decode"},
    {"url": "http://127.0.0.1:9", "worker_type": "encode"},
    {"worker_type": ["decode"]},
    "http://127.0.0.1:9",
    None,
]


@pytest.mark.parametrize("entry", STRANGE, ids=range(len(STRANGE)))
def test_a_listed_worker_that_cannot_be_asked_stays_unknown(entry: object) -> None:
    """Left out, the others would pass for the whole deployment."""

    async def exchange() -> Facts:
        async with (
            rogue_server(documents(server_info=INFO)) as one,
            rogue_server(documents(server_info=INFO)) as two,
        ):
            named: dict[str, Any] = listing(("prefill", root(one)), ("decode", root(two)))
            named["workers"].append(entry)
            async with rogue_server(documents(workers=named)) as front:
                return await asked(front.base_url)

    facts = run(exchange())
    assert len(facts.workers) == 3
    assert not capacity.assessed(facts)
    assert facts.decode_pool_tokens is None
    assert len(facts.notes) == 1
    assert "1 of the 3 workers that the front door lists cannot be asked" in facts.notes[0]
    said = facts.model_dump_json()
    assert "hunter2" not in said
    assert "u001b" not in said
    assert len(said) < 10_000


def test_one_address_in_two_roles_has_none_that_is_known() -> None:
    """It would be counted twice, as if two pools were behind it."""

    async def exchange() -> Facts:
        async with rogue_server(documents(server_info=INFO)) as one:
            twice = listing(("prefill", root(one)), ("decode", root(one)))
            async with rogue_server(documents(workers=twice)) as front:
                return await asked(front.base_url)

    facts = run(exchange())
    (only,) = facts.workers
    assert (only.role, only.pool_tokens) == (Role.UNIFIED, 700)
    assert f"lists {only.url} in several roles" in facts.notes[0]


def test_more_workers_than_are_asked_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_WORKERS", 8)

    async def exchange() -> tuple[Facts, int]:
        async with rogue_server(documents(server_info=INFO)) as one:
            named = listing(*(("decode", f"{root(one)}/{number}") for number in range(10)))
            async with rogue_server(documents(workers=named)) as front:
                endpoint = Endpoint(front.base_url, "tiny")
                async with Client(endpoint) as client:
                    facts = await discover(client, 2_048)
                    return facts, len({call.path.split("/")[1] for call in one.calls})

    facts, asked = run(exchange())
    assert asked == 8
    assert len(facts.workers) == 9
    assert not capacity.assessed(facts)
    assert f"first 8 of {10}" in facts.notes[0]
    assert len({worker.url for worker in facts.workers}) == len(facts.workers)


@pytest.mark.parametrize(
    "document", [{}, {"workers": None}, {"workers": "x"}, {"workers": []}, [], 7]
)
def test_no_list_of_workers_is_a_worker_of_its_own_or_none(document: object) -> None:
    async def exchange() -> tuple[Facts, Facts]:
        async with (
            rogue_server(documents(workers=document, get_server_info=INFO)) as alone,
            rogue_server(documents(workers=document)) as door,
        ):
            return await asked(alone.base_url), await asked(door.base_url)

    alone, door = run(exchange())
    assert [(w.role, w.pool_tokens) for w in alone.workers] == [(Role.UNIFIED, 700)]
    assert door.workers == ()
    assert any("/workers" in note for note in door.notes)


# the context limit


def context_of(given: int | None, **answers: object) -> tuple[int | None, str]:
    async def exchange() -> Facts:
        async with rogue_server(documents(**answers)) as server:
            return await asked(server.base_url, given)

    facts = run(exchange())
    return facts.context_tokens, facts.context_source


def test_the_context_is_what_was_promised_then_advertised_then_enforced() -> None:
    models = {"data": [{"id": "other", "max_model_len": 5}, {"id": "tiny", "max_model_len": 4_096}]}
    assert context_of(9, v1_models=models, server_info=INFO) == (9, "--context")
    assert context_of(None, v1_models=models, server_info=INFO)[0] == 4_096
    assert context_of(None, server_info=INFO)[0] == 2_048
    assert context_of(None) == (None, "unknown")


@pytest.mark.parametrize(("handler", "error"), [(refusing, Unauthorized), (silent, Unreachable)])
def test_nobody_could_be_asked(handler: Handler, error: type[KvcanaryError]) -> None:
    async def exchange(context: int | None) -> Facts:
        async with rogue_server(handler) as server:
            return await asked(server.base_url, context)

    with pytest.raises(error, match=r"GET http://127\.0\.0\.1:\d+/v1/models: .*\. "):
        run(exchange(None))
    assert run(exchange(4_096)).context_tokens == 4_096, "the first request will tell"


@pytest.mark.parametrize("context", [None, 4_096])
def test_nothing_listens(context: int | None, unused: Callable[[], int]) -> None:
    with pytest.raises(Unreachable, match=r"connection was refused\. Check that the server runs"):
        asyncio.run(asked(f"http://127.0.0.1:{unused()}/v1", context))


async def page(call: Call) -> None:
    await call.answer(200, b"<!doctype html><html><body>Welcome</body></html>", "text/html")


async def empty(call: Call) -> None:
    await call.answer(200, b"")


async def broken(call: Call) -> None:
    await call.answer(500, b'{"error":"oops"}')


async def half(call: Call) -> None:
    await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
    call.hang_up()


async def other(call: Call) -> None:
    await call.answer(200, b'{"status":"ok"}')


@pytest.mark.parametrize(
    ("handler", "came"),
    [
        (page, "a web page"),
        (empty, "an empty body"),
        (broken, "HTTP 500"),
        (half, "no whole HTTP answer"),
        (garbage, "something that is no JSON"),
        (redirecting, "HTTP 30"),
        (huge, "more than is read"),
        (other, "no list of models"),
    ],
)
def test_what_is_no_server_of_a_model_is_said_to_be_none(handler: Handler, came: str) -> None:
    async def exchange() -> tuple[Facts, str]:
        async with rogue_server(handler) as server:
            return await asked(server.base_url, None), server.base_url

    facts, url = run(exchange())
    assert facts.workers == ()
    assert facts.notes[0].startswith(f"GET {url}/models: {came}")
    assert "usually ending in /v1" in facts.notes[0]


@pytest.fixture
def unused() -> Callable[[], int]:
    import socket

    def port() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            number: int = probe.getsockname()[1]
            return number

    return port


# use of the pool


@pytest.mark.parametrize("trusted", [False, True])
def test_use_is_read_with_the_key_only_if_trusted(*, trusted: bool) -> None:
    async def exchange() -> tuple[int | None, list[Call]]:
        loads = {"loads": [{"num_used_tokens": 123}]}
        async with rogue_server(documents(v1_loads=loads)) as server:
            endpoint = Endpoint(server.base_url, "tiny", api_key=SecretKey(SECRET))
            async with Client(endpoint) as client:
                asked = worker(url=root(server))
                used = await used_tokens(client, asked, trust_discovered=trusted)
                return used, server.calls

    used, calls = run(exchange())
    assert used == 123
    assert {call.path.partition("?")[0] for call in calls} == {"/v1/loads", "/metrics"}
    assert all(("authorization" in call.headers) is trusted for call in calls)


@pytest.mark.parametrize(
    ("uses", "total"), [((5, 7), 12), ((5,), 5), ((5, None), None), ((None,), None)]
)
def test_the_gauge_is_the_sum_over_all_that_decode(
    uses: tuple[int | None, ...], total: int | None
) -> None:
    """All ranks of all decode workers, and of them alone; unknown when one says nothing."""

    def telling(use: int | None) -> Handler:
        ranks = [{"dp_rank": n, "num_used_tokens": part} for n, part in enumerate((use, 0))]
        return documents(v1_loads={"loads": ranks}) if use is not None else documents()

    async def exchange() -> int | None:
        async with AsyncExitStack() as stack:
            served = [await stack.enter_async_context(rogue_server(telling(use))) for use in uses]
            decoders = [worker(Role.DECODE, url=root(one), used_tokens=0) for one in served]
            async with Client(Endpoint(served[0].base_url, "tiny")) as client:
                prefill = worker(Role.PREFILL)
                gauge = make_gauge(client, facts(prefill, *decoders))
                assert gauge
                return await gauge()

    assert run(exchange()) == total


def test_there_is_no_gauge_where_one_that_decodes_told_no_use() -> None:
    silent_one = worker(Role.DECODE, used_tokens=None)
    client = cast("Client", None)
    assert make_gauge(client, facts(worker(Role.DECODE, used_tokens=0), silent_one)) is None
    assert make_gauge(client, facts(worker(Role.PREFILL, used_tokens=0))) is None

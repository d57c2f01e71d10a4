"""Workers that a person names, metrics that are elsewhere, and front doors of other kinds."""

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.discovery import discover
from kvcanary.deployment.facts import Facts, Role
from kvcanary.deployment.gauge import used_tokens
from kvcanary.deployment.target import KnownWorker
from kvcanary.detect import capacity
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, SecretKey
from tests.builders import worker
from tests.engines.captures import CAPTURED, METRICS, answer
from tests.probing.rogue_server import Call, Handler, Rogue, rogue_server, run

INFO = answer("sglang-0.5.23-server_info.json")
SGLANG_PAGE = (METRICS / "sglang-0.5.23.prom").read_text()
VLLM_PAGE = (METRICS / "vllm-0.32.0.prom").read_text()
DOOR_KEY, WORKER_KEY = "sk-door-0123456789", "sk-worker-0123456789"
SITE_KEY = SiteKey(b"k" * 32)


def serving(key: str | None = None, **documents: object) -> Handler:
    """Documents by path with ``_`` for ``/``; text is metrics. ``key``: needed, but for metrics."""

    async def handler(call: Call) -> None:
        path = call.path.partition("?")[0].strip("/").replace("/", "_")
        given = call.headers.get("authorization")
        if key and path != "metrics" and given != f"Bearer {key}":
            await call.answer(401)
        elif path not in documents:
            await call.answer(404)
        elif isinstance(documents[path], str):
            await call.answer(200, str(documents[path]).encode(), "text/plain")
        else:
            await call.answer(200, json.dumps(documents[path]).encode())

    return handler


def root(server: Rogue) -> str:
    return server.base_url.removesuffix("/v1")


def asked(front: Handler, *named: Handler, **how: Any) -> tuple[Facts, list[Rogue]]:
    """Facts of a front door and of workers that a person names; ``how``: fields of each, by its number."""

    async def exchange() -> tuple[Facts, list[Rogue]]:
        async with AsyncExitStack() as stack:
            door = await stack.enter_async_context(rogue_server(front))
            served = [await stack.enter_async_context(rogue_server(one)) for one in named]
            roles = how.get("roles", [Role.PREFILL, Role.DECODE])
            fields = how.get("fields", {})
            known = [
                KnownWorker(
                    role,
                    root(one),
                    **{k: v(served) if callable(v) else v for k, v in fields.get(n, {}).items()},
                )
                for n, (role, one) in enumerate(zip(roles, served, strict=False))
            ]
            endpoint = Endpoint(door.base_url, "tiny", api_key=SecretKey(DOOR_KEY))
            async with Client(endpoint) as client:
                facts = await discover(
                    client,
                    2_048,
                    workers=known,
                    site_key=SITE_KEY,
                    trust_discovered=how.get("trusted", False),
                    deadline_seconds=3.0,
                )
            return facts, [door, *served]

    return run(exchange())


def listing(*kinds: str) -> dict[str, object]:
    return {
        "workers": [{"url": f"http://10.0.0.{n}:1", "worker_type": k} for n, k in enumerate(kinds)]
    }


def test_named_workers_are_asked_and_the_router_s_addresses_are_not() -> None:
    """Inside a cluster they may not be reachable from here."""
    front = serving(workers=listing("prefill", "decode"))
    facts, _ = asked(front, serving(server_info=INFO), serving(server_info=INFO))
    assert [(w.role, w.pool_tokens) for w in facts.workers] == [
        (Role.PREFILL, 700),
        (Role.DECODE, 700),
    ]
    assert facts.notes == ()
    assert facts.front_door == "vllm-router"
    assert capacity.assessed(facts)


def test_workers_that_were_not_named_are_unknown() -> None:
    front = serving(workers=listing("prefill", "decode", "decode", "decode"))
    facts, _ = asked(front, serving(server_info=INFO), serving(server_info=INFO))
    assert [w.pool_tokens for w in facts.workers] == [700, 700, None, None]
    assert not capacity.assessed(facts)
    (note,) = facts.notes
    assert "lists 3 decode workers and the deployment file names 1" in note


@pytest.mark.parametrize("trusted", [False, True])
def test_a_named_worker_has_a_key_of_its_own_or_the_door_s_if_trusted(*, trusted: bool) -> None:
    facts, (_, one, two) = asked(
        serving(),
        serving(WORKER_KEY, server_info=INFO, metrics=SGLANG_PAGE),
        serving(DOOR_KEY, server_info=INFO, metrics=SGLANG_PAGE),
        fields={0: {"api_key": SecretKey(WORKER_KEY)}},
        trusted=trusted,
    )
    keyed, other = facts.workers
    assert keyed.source == "/server_info"
    assert other.source == ("/server_info" if trusted else "/metrics"), "metrics are open"
    assert [w.pool_tokens for w in facts.workers] == [700, 700]
    assert {c.headers.get("authorization") for c in one.calls} == {f"Bearer {WORKER_KEY}"}
    door = {f"Bearer {DOOR_KEY}"} if trusted else {None}
    assert {c.headers.get("authorization") for c in two.calls} == door


def test_the_gauge_asks_with_the_worker_s_own_key() -> None:
    async def exchange() -> int | None:
        loads = {"loads": [{"num_used_tokens": 7}]}
        async with (
            rogue_server(serving(WORKER_KEY, v1_loads=loads)) as one,
            Client(Endpoint("http://127.0.0.1:9/v1", "tiny")) as client,
        ):
            known = KnownWorker(Role.DECODE, root(one), api_key=SecretKey(WORKER_KEY))
            return await used_tokens(client, worker(Role.DECODE, url=known.url), [known])

    assert run(exchange()) == 7


def test_metrics_may_be_elsewhere() -> None:
    """Such as on the system port of a Dynamo worker."""

    def elsewhere(served: list[Rogue]) -> str:
        return f"{root(served[1])}/metrics"

    facts, (_, _, metrics) = asked(
        serving(),
        serving(v1_models=answer("vllm-0.32.0-v1_models.json")),
        serving(metrics=VLLM_PAGE),
        roles=[Role.DECODE],
        fields={0: {"metrics_url": elsewhere}},
    )
    (found,) = facts.workers
    assert (found.engine, found.pool_tokens, found.context_tokens) == ("vllm", 608, 608)
    assert found.role is Role.DECODE
    assert found.metrics_at == f"{root(metrics)}/metrics"
    assert [call.path for call in metrics.calls] == ["/metrics"]


def test_a_worker_whose_metrics_alone_answer_is_known_by_them() -> None:
    async def dead(call: Call) -> None:
        call.hang_up(reset=True)

    facts, _ = asked(
        serving(),
        dead,
        serving(metrics=SGLANG_PAGE),
        roles=[Role.DECODE],
        fields={0: {"metrics_url": lambda served: f"{root(served[1])}/metrics"}},
    )
    assert facts.workers[0].pool_tokens == 700


def test_a_queue_of_statistics_is_not_drained_where_the_engine_is_named() -> None:
    facts, (_, one) = asked(
        serving(), serving(), roles=[Role.UNIFIED], fields={0: {"engine": "tensorrt-llm"}}
    )
    assert facts.workers[0].pool_tokens is None
    assert "/metrics" not in {call.path for call in one.calls}
    assert "/prometheus/metrics" in {call.path for call in one.calls}


def test_a_configuration_has_a_fingerprint_that_follows_it() -> None:
    changed = INFO | {"chunked_prefill_size": 1}
    rekeyed = INFO | {"api_key": "sk-new", "launch_command": "--api-key sk-new"}
    marks = []
    for info in (INFO, changed, rekeyed):
        facts, _ = asked(serving(server_info=info))
        marks.append(facts.workers[0].configuration)
    assert marks[0]
    assert marks[0] == marks[2] != marks[1]


def test_a_worker_that_serves_another_model_is_told() -> None:
    models = {"data": [{"id": "somebody-elses-name"}]}
    facts, _ = asked(serving(server_info=INFO | {"served_model_name": "x"}, v1_models=models))
    assert facts.workers[0].model is None
    (note,) = facts.notes
    assert note.endswith("does not say that it serves tiny.")
    assert "somebody" not in facts.model_dump_json()
    facts, _ = asked(serving(server_info=INFO))
    assert facts.workers[0].model == "tiny"


# front doors


@pytest.mark.parametrize(
    ("documents", "front_door"),
    [
        ({"server_info": INFO}, "sglang"),
        ({"metrics": VLLM_PAGE}, "vllm"),
        ({"props": answer("llamacpp-11434-props.json")}, "llama.cpp"),
        ({"info": answer("tgi-3.2.1-info.json")}, "tgi"),
        ({"api_ps": {"models": []}}, "ollama"),
        ({"metrics": (CAPTURED / "triton.prom").read_text()}, "triton"),
        ({}, None),
    ],
)
def test_an_engine_at_the_front_door(documents: dict[str, Any], front_door: str | None) -> None:
    facts, _ = asked(serving(**documents))
    assert facts.front_door == front_door
    assert len(facts.workers) == (1 if front_door else 0)


def test_workers_out_of_reach_are_known_by_what_their_router_shows() -> None:
    """sglang-router's ``/engine_metrics``: its workers are on addresses of its own."""
    entries = [
        {"url": f"http://127.0.0.1:{port}", "worker_type": role, "metadata": {}}
        for port, role in ((1, "prefill"), (2, "decode"))
    ]
    page = (CAPTURED / "sglang-router-0.3.2-engine_metrics.prom").read_text()
    page = page.replace(":18101", ":1").replace(":18102", ":2")
    facts, _ = asked(serving(workers={"workers": entries}, engine_metrics=page))
    assert facts.front_door == "sglang-router"
    assert [(w.role, w.engine, w.pool_tokens) for w in facts.workers] == [
        (Role.PREFILL, "sglang", 100_000),
        (Role.DECODE, "sglang", 20_000),
    ]


def test_a_list_of_addresses_has_the_roles_that_workers_say() -> None:
    async def exchange() -> Facts:
        decode = INFO | {"disaggregation_mode": "decode"}
        async with (
            rogue_server(serving(server_info=decode)) as one,
            rogue_server(serving(server_info=INFO)) as two,
            rogue_server(serving(list_workers={"urls": [root(one), root(two)]})) as front,
            Client(Endpoint(front.base_url, "tiny")) as client,
        ):
            return await discover(client, 2_048)

    facts = run(exchange())
    assert [w.role for w in facts.workers] == [Role.DECODE, Role.UNIFIED]
    (note,) = facts.notes
    assert "role" in note


# Dynamo

FRONTEND = (
    'dynamo_frontend_model_total_kv_blocks{model="m"} 1000\n'
    'dynamo_frontend_model_kv_cache_block_size{model="m"} 16\n'
    'dynamo_frontend_model_context_length{model="m"} 4096\n'
)


def instances(*components: str) -> dict[str, object]:
    return {"instances": [{"component": c, "endpoint": "generate"} for c in components]}


def test_dynamo_with_one_instance_has_its_figures_on_the_frontend() -> None:
    facts, _ = asked(serving(health=instances("backend"), metrics=FRONTEND))
    (found,) = facts.workers
    assert (found.engine, found.pool_tokens, found.context_tokens) == ("dynamo", 16_000, 4_096)


def test_dynamo_s_figures_are_nobody_else_s() -> None:
    """They describe the instance that registered first."""
    facts, _ = asked(serving(health=instances("prefill", "backend"), metrics=FRONTEND))
    assert [(w.role, w.pool_tokens) for w in facts.workers] == [
        (Role.PREFILL, None),
        (Role.DECODE, None),
    ]
    assert len({w.url for w in facts.workers}) == 2
    assert not capacity.assessed(facts)
    assert "DYN_SYSTEM_PORT" in facts.notes[0]


def test_health_is_not_asked_of_an_engine() -> None:
    """SGLang generates a token for it."""
    _, (door,) = asked(serving(server_info=INFO))
    assert "/health" not in {call.path for call in door.calls}

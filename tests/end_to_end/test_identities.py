"""Tenants with keys of their own: what is sent as whom, seen on the wire, and what the record says of it."""

import asyncio
from dataclasses import replace
from pathlib import Path

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.errors import Unauthorized
from kvcanary.lab import Lab, WallClock, scenario_named
from kvcanary.probing.endpoint import Endpoint, Identity, Proxy, SecretKey
from kvcanary.probing.identities import Identities
from kvcanary.probing.roles import FIRST_VICTIM, MAX_VICTIMS, READERS
from kvcanary.record.exchange import Purpose
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from tests.probing.proxy import Passed, proxy
from tests.probing.rogue_server import Call, rogue_server

CONTEXT = 4_096
IDENTITIES = tuple(
    Identity(
        SecretKey(f"key-{name}"),
        (("X-Org", SecretKey(f"org-{name}")),),
        SecretKey(f"salt-{name}"),
        f"user-{name}",
    )
    for name in "abc"
)


async def _checked(folder: Path) -> tuple[RunRecord, list[Passed]]:
    scenario = scenario_named("healthy").scaled(context_tokens=CONTEXT)
    async with Lab(scenario, clock=WallClock(20)) as lab, proxy() as running:
        endpoint = Endpoint(f"{lab.url}/v1", lab.model_name, proxy=Proxy(running.url))
        target = Target("healthy", endpoint, CONTEXT, identities=IDENTITIES)
        options = Options(record=folder / "record.jsonl", site_key=SiteKey(bytes(range(32))))
        return (await run_check(target, options)).record, running.passed


def test_every_request_is_sent_as_the_record_says(tmp_path: Path) -> None:
    record, passed = asyncio.run(_checked(tmp_path))
    sent = {p.headers["x-request-id"]: p for p in passed if p.method == "POST"}
    for exchange in record.exchanges:
        request = sent[exchange.name]
        assert exchange.identity is not None
        name = "abc"[exchange.identity]
        assert request.headers["authorization"] == f"Bearer key-{name}"
        assert request.headers["x-org"] == f"org-{name}"
        assert request.fields["cache_salt"] == f"salt-{name}"
        assert request.fields["user"] == f"user-{name}"
    for purpose in (Purpose.FILL, Purpose.READER):
        assert len({e.identity for e in record.exchanges if e.purpose is purpose}) > 1
    assert record.info.separation.model_dump() == {
        "identities": 3,
        "keys": 3,
        "headers": 3,
        "salts": 3,
        "users": 3,
        "models": 1,
    }
    text = (tmp_path / "record.jsonl").read_text()
    assert not [word for word in ("key-a", "org-a", "salt-a", "user-a") if word in text]


def test_whoever_reads_first_is_another_than_whoever_was_there_first() -> None:
    endpoint = Endpoint("http://host/v1", "tiny")
    for count in range(2, MAX_VICTIMS):
        dealt = Identities(endpoint, tuple(Identity(user=str(n)) for n in range(count)))
        assert dealt.index(READERS[0]) != dealt.index(FIRST_VICTIM)
        for tenant in (*READERS[:-1], *range(FIRST_VICTIM, FIRST_VICTIM + MAX_VICTIMS - 1)):
            assert dealt.index(tenant) != dealt.index(tenant + 1)
    alone = Identities(endpoint)
    assert alone.index(READERS[0]) is None
    assert alone.separation().keys == 0
    assert Identities(replace(endpoint, api_key=SecretKey("k"))).separation().keys == 1


def test_keys_are_told_apart_by_what_they_are() -> None:
    """A gateway counts by key: an identity without one is counted under the front door's."""
    endpoint = Endpoint("http://host/v1", "tiny", api_key=SecretKey("front"))
    dealt = Identities(
        endpoint,
        (
            Identity(SecretKey("one"), user="a"),
            Identity(user="b"),
            Identity(SecretKey("one"), user="c"),
            Identity(SecretKey("front"), user="d"),
        ),
    )
    numbers = {dealt.index(tenant): dealt.key(tenant) for tenant in range(FIRST_VICTIM)}
    assert numbers[0] == numbers[2] != numbers[1] == numbers[3]
    assert dealt.separation().keys == 2


def test_a_tenant_whose_key_is_refused_is_said_before_a_prompt_is_sent(tmp_path: Path) -> None:
    async def handler(call: Call) -> None:
        assert call.method == "GET"
        if call.headers.get("authorization") == "Bearer key-b":
            await call.answer(401, b"{}")
        else:
            await call.answer(200, b'{"data":[{"id":"tiny"}]}')

    async def exchange() -> str:
        async with rogue_server(handler) as server:
            target = Target("x", Endpoint(server.base_url, "tiny"), identities=IDENTITIES)
            options = Options(record=tmp_path / "r.jsonl", site_key=SiteKey(bytes(32)))
            try:
                await run_check(target, options)
            except Unauthorized as error:
                return str(error)
        raise AssertionError("nobody was refused")

    said = asyncio.run(exchange())
    assert "as tenants.1 of the deployment file: the credentials were refused" in said
    assert "key-b" not in said

"""Many workers, some of which are ill: complete for the others, within the deadline, in parallel."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from kvcanary.deployment.asking import AT_ONCE
from kvcanary.deployment.discovery import discover
from kvcanary.deployment.facts import Facts, Role
from kvcanary.deployment.target import KnownWorker
from kvcanary.detect import capacity
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint
from tests.engines.captures import answer
from tests.probing.rogue_server import Call, Handler, rogue_server, run

INFO = json.dumps(answer("sglang-0.5.23-server_info.json")).encode()
MODELS = json.dumps(answer("sglang-0.5.23-v1_models.json")).encode()
HANGING, FAILING, HALF = 7, 21, 40


class Fleet:
    """Workers, each a server of its own; notes how many documents are asked for at once."""

    def __init__(self) -> None:
        self.at_once = 0
        self.most_at_once = 0

    def worker(self, number: int) -> Handler:
        async def handle(call: Call) -> None:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                await respond(number, call)
            finally:
                self.at_once -= 1

        return handle


async def respond(number: int, call: Call) -> None:
    if number == HANGING:
        await call.disconnected()
    elif number == FAILING:
        await call.answer(500, b'{"error": "internal"}')
    elif number == HALF:
        await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + INFO[:100])
        call.hang_up(reset=True)
    elif call.path == "/server_info":
        await call.answer(200, INFO)
    elif call.path == "/v1/models":
        await call.answer(200, MODELS)
    else:
        await call.answer(404)


def role(number: int) -> Role:
    return Role.PREFILL if number % 2 else Role.DECODE


def of_fleet(count: int, deadline: float, *, named: bool = False) -> tuple[Facts, Fleet]:
    """Facts of so many workers, listed by a router or named by a person."""

    async def exchange() -> tuple[Facts, Fleet]:
        fleet = Fleet()
        async with AsyncExitStack() as stack:
            served = [
                await stack.enter_async_context(rogue_server(fleet.worker(number)))
                for number in range(count)
            ]
            urls = [one.base_url.removesuffix("/v1") for one in served]
            entries = [{"url": u, "worker_type": role(n).value} for n, u in enumerate(urls)]
            listing = json.dumps({"workers": entries}).encode()

            async def router(call: Call) -> None:
                listed = call.path == "/workers" and not named
                await call.answer(200 if listed else 404, listing)

            front = await stack.enter_async_context(rogue_server(router))
            client = await stack.enter_async_context(Client(Endpoint(front.base_url, "tiny")))
            known = [KnownWorker(role(n), u) for n, u in enumerate(urls)] if named else []
            return await discover(client, 2_048, workers=known, deadline_seconds=deadline), fleet

    return run(exchange())


@pytest.mark.parametrize("named", [False, True], ids=["listed", "named"])
def test_of_64_workers_three_are_ill_and_the_others_are_complete(*, named: bool) -> None:
    facts, fleet = of_fleet(64, deadline=5.0, named=named)
    assert len(facts.workers) == 64
    unknown = [n for n, worker in enumerate(facts.workers) if worker.pool_tokens is None]
    assert unknown == [HANGING, FAILING, HALF]
    for number, worker in enumerate(facts.workers):
        assert worker.role is role(number)
        if number not in unknown:
            assert (worker.pool_tokens, worker.limit_tokens, worker.engine) == (700, 693, "sglang")
    hanging, failing, half = facts.notes
    assert "(no answer in time)" in hanging
    assert "(HTTP 500)" in failing
    assert "did not tell its capacity" in half
    assert not capacity.assessed(facts), "inconclusive"
    assert 1 < fleet.most_at_once <= AT_ONCE


def test_a_fleet_that_hangs_ends_with_the_whole_s_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve rounds of waiting would be due; after six it is over, and nobody is left out."""
    monkeypatch.setattr("tests.deployment.test_many_workers.respond", hang)
    monkeypatch.setattr("kvcanary.deployment.asking.AT_ONCE", 2)
    facts, _ = of_fleet(24, deadline=0.1, named=True)
    assert len(facts.workers) == 24
    assert all(worker.pool_tokens is None for worker in facts.workers)
    whys = [note.rpartition("(")[2] for note in facts.notes]
    assert {"no answer in time).", "nothing came back in time)."} == set(whys)


async def hang(_: int, call: Call) -> None:
    await call.disconnected()


def test_interrupting_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = asyncio.Event()

    async def tell(number: int, call: Call) -> None:
        hanging.set()
        await hang(number, call)

    monkeypatch.setattr("tests.deployment.test_many_workers.respond", tell)

    async def exchange() -> list[str]:
        async with rogue_server(Fleet().worker(0)) as served:
            root = served.base_url.removesuffix("/v1")
            known = tuple(KnownWorker(Role.UNIFIED, f"{root}/{n}") for n in range(8))

            async with (
                rogue_server(not_found) as front,
                Client(Endpoint(front.base_url, "m")) as client,
            ):
                task = asyncio.create_task(discover(client, 2_048, workers=known))
                await hanging.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                return [repr(task) for task in asyncio.all_tasks()]

    assert not [name for name in run(exchange()) if "Asker" in name]


async def not_found(call: Call) -> None:
    await call.answer(404)

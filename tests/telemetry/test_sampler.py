"""The sampler against workers on real sockets: good ones, silent ones, and none."""

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from kvcanary.deployment.facts import Role, Worker
from kvcanary.deployment.target import KnownWorker
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, PlainText, Request, SecretKey
from kvcanary.record.series import Series
from kvcanary.telemetry import sampler as sampler_module
from kvcanary.telemetry.meter import short_names
from kvcanary.telemetry.sampler import Sampler
from tests.builders import worker
from tests.probing.rogue_server import Call, Handler, delta, rogue_server, run, sse, usage

INTERVAL = 0.01
VLLM = (
    'vllm:num_requests_running{engine="0"} 1\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    'vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="416"} 1\n'
)


def loads(used: int) -> bytes:
    load = {"dp_rank": 0, "num_used_tokens": used, "max_total_num_tokens": 700}
    return json.dumps({"loads": [{**load, "num_running_reqs": 2}]}).encode()


class Box:
    """A worker that tells one token more each time it is asked; `asked` is set after ``enough``."""

    def __init__(self, enough: int = 5) -> None:
        self.count = 0
        self.enough = enough
        self.asked = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.path == "/metrics":
            await call.answer(200, b"sglang:num_transfer_failed_reqs_total 3\n", "text/plain")
            return
        self.count += 1
        await call.answer(200, loads(self.count))
        if self.count >= self.enough:
            self.asked.set()


def sampler_of(
    base_url: str,
    *workers: Worker,
    with_key: bool = False,
    known: Sequence[KnownWorker] = (),
    interval: float = INTERVAL,
) -> Sampler:
    endpoint = Endpoint(base_url, "tiny", api_key=SecretKey("sk-1"))
    return Sampler(
        endpoint,
        workers,
        short_names(workers),
        with_key=with_key,
        known=known,
        interval_seconds=interval,
    )


def at(base_url: str, engine: str = "sglang", role: Role = Role.DECODE) -> Worker:
    return worker(role, url=base_url.removesuffix("/v1"), engine=engine)


def sampled(
    handler: Handler,
    asked: Callable[[], asyncio.Event],
    *,
    with_key: bool = False,
    engine: str = "sglang",
) -> tuple[tuple[Series, ...], list[Call]]:
    """The series of one worker that is sampled until `asked` says enough."""

    async def scene() -> tuple[tuple[Series, ...], list[Call]]:
        async with rogue_server(handler) as server:
            sampler = sampler_of(server.base_url, at(server.base_url, engine), with_key=with_key)
            async with sampler:
                await asyncio.wait_for(asked().wait(), 60)
            return sampler.series(), server.calls

    return run(scene())


def test_a_pool_is_read_over_time_and_once_more_when_the_run_is_over() -> None:
    box = Box()
    (series,), calls = sampled(box, lambda: box.asked)
    assert (series.worker, series.pool_tokens, series.unanswered) == ("D1", 700, 0)
    # one that was under way at the end is not counted
    assert list(series.used_tokens[:4]) == [1, 2, 3, 4]
    assert series.last_tokens == series.peak_tokens == box.count
    assert series.peak_running == 2
    assert set(series.failures) == {3}
    assert series.new_failures == 0
    assert list(series.at_seconds) == sorted(series.at_seconds)
    assert not any("authorization" in call.headers for call in calls)


def test_the_key_goes_along_where_it_is_due() -> None:
    box = Box(enough=1)
    _, calls = sampled(box, lambda: box.asked, with_key=True)
    assert all("authorization" in call.headers for call in calls)


def test_an_engine_that_tells_metrics_only() -> None:
    asked = asyncio.Event()

    async def handler(call: Call) -> None:
        assert call.path == "/metrics"
        await call.answer(200, VLLM.encode(), "text/plain")
        asked.set()

    (series,), _ = sampled(handler, lambda: asked, engine="vllm")
    assert (series.peak_tokens, series.pool_tokens, series.peak_running) == (100, 400, 1)
    assert series.queued == ()


def test_a_worker_with_a_key_and_a_metrics_page_of_its_own() -> None:
    """Its key goes to it and to its page; the front door's goes to neither."""

    async def scene() -> None:
        asked = asyncio.Event()

        async def metrics(call: Call) -> None:
            await call.answer(200, VLLM.encode(), "text/plain")
            asked.set()

        async def engine(call: Call) -> None:
            raise AssertionError(call.path)

        async with rogue_server(metrics) as page, rogue_server(engine) as server:
            url = server.base_url.removesuffix("/v1")
            metrics_url = f"{page.base_url}/some/metrics"
            box = worker(Role.DECODE, url=url, engine="vllm", metrics_url=metrics_url)
            known = [KnownWorker(Role.DECODE, f"{url}/v1", metrics_url, api_key=SecretKey("sk-2"))]
            sampler = sampler_of(server.base_url, box, known=known)
            async with sampler:
                await asyncio.wait_for(asked.wait(), 60)
            (series,) = sampler.series()
            assert series.peak_tokens == 100
            assert {call.path for call in page.calls} == {"/v1/some/metrics"}
            assert {call.headers["authorization"] for call in page.calls} == {"Bearer sk-2"}

    run(scene())


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"\xff\x00", b'{"loads":[{}]}', b""])
@pytest.mark.parametrize("status", [200, 500])
def test_a_worker_that_tells_nothing_has_an_empty_series(answer: bytes, status: int) -> None:
    asked = asyncio.Event()

    async def handler(call: Call) -> None:
        await call.answer(status, answer)
        asked.set()

    (series,), _ = sampled(handler, lambda: asked)
    assert series.at_seconds == ()
    assert series.unanswered > 0
    assert series.peak_tokens is None


def test_a_silent_worker_costs_its_own_readings_only_and_no_probe_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten workers never answer, one does, and prompts pass while all their readings are under way."""
    monkeypatch.setattr(sampler_module, "LAST_SECONDS", 0.1)

    async def scene() -> None:
        box = Box(enough=8)
        silent_calls = 0
        all_hang = asyncio.Event()

        async def silence(call: Call) -> None:
            nonlocal silent_calls
            silent_calls += 1
            if silent_calls == 20:
                all_hang.set()
            await call.disconnected()

        async def door(call: Call) -> None:
            await call.start_stream()
            await call.say(sse(delta("own"), delta("", "stop"), usage(), "[DONE]"))
            call.hang_up()

        async with (
            rogue_server(silence) as silent,
            rogue_server(box) as good,
            rogue_server(door) as front,
        ):
            urls = [f"{silent.base_url.removesuffix('/v1')}/{n}" for n in range(10)]
            quiet = [worker(Role.PREFILL, url=url) for url in urls]
            sampler = sampler_of(front.base_url, *quiet, at(good.base_url))
            async with sampler:
                await asyncio.wait_for(asyncio.gather(all_hang.wait(), box.asked.wait()), 60)
                async with Client(Endpoint(front.base_url, "tiny"), concurrency=1) as client:
                    request = Request("kvc-1", PlainText("hello"), 8, "tenant")
                    reply = await client.send(request, deadline_seconds=60)
                assert reply.outcome == "answered"
                assert silent_calls == 20  # one reading each, of two documents
            *nothing, something = sampler.series()
            assert [series.worker for series in nothing] == [f"P{n}" for n in range(1, 11)]
            assert not any(series.at_seconds for series in nothing)
            assert len(something.at_seconds) >= 8

    run(scene())


def test_what_broke_off_is_not_asked_again() -> None:
    async def scene() -> None:
        box = Box(enough=1)
        async with rogue_server(box) as server:
            sampler = sampler_of(server.base_url, at(server.base_url), interval=3_600)

            async def sample() -> None:
                async with sampler:
                    await asyncio.Event().wait()

            task = asyncio.create_task(sample())
            await asyncio.wait_for(box.asked.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert box.count == 1

    run(scene())


def test_a_worker_without_an_address_is_not_asked() -> None:
    async def scene() -> None:
        async with sampler_of("http://127.0.0.1:1/v1", worker(url="-")) as sampler:
            pass
        assert sampler.series() == ()

    run(scene())

"""A real Prometheus server that scrapes a lab of two prefill and two decode workers, and a DCGM exporter."""

import urllib.request
from dataclasses import replace

import pytest

from kvcanary.deployment.discovery import discover
from kvcanary.deployment.facts import Facts, Role, Worker
from kvcanary.deployment.target import GpuReader, GpuSource, PrometheusServer
from kvcanary.detect import capacity
from kvcanary.engines.exposition import Exposition, parse
from kvcanary.engines.gauges import Level
from kvcanary.engines.levels import WANTED, levels_in
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint
from kvcanary.record.series import Series
from kvcanary.telemetry.gpus import GpuWatch
from kvcanary.telemetry.meter import short_names
from kvcanary.telemetry.nvml import GpusSeen
from kvcanary.telemetry.prometheus import Found, Prometheus, ScrapedWorker
from kvcanary.telemetry.sampler import Sampler
from tests import builders
from tests.probing.rogue_server import Call, rogue_server, run
from tests.telemetry.real_prometheus import Scene

FIXED = {"sglang:context_len", "sglang:page_size", "sglang:max_total_num_tokens"}
METRICS = WANTED | FIXED | {"sglang:prompt_tokens_total"}


def test_targets_are_workers_with_the_role_of_their_label(scene: Scene) -> None:
    found = run(Prometheus(scene.server()).workers())
    assert {w.url: w.role for w in found.workers} == scene.workers
    assert all(w.fresh for w in found.workers)
    assert found.notes == ()


def test_a_scrape_reads_as_the_worker_itself_does(scene: Scene) -> None:
    """Under the engine's own labels, though the target's labels hide one of them."""
    reader = Prometheus(scene.server())

    async def pages() -> dict[str, Exposition]:
        return {p.url: p.page for p in await reader.pages(METRICS, await reader.workers())}

    through = run(pages())
    assert through.keys() == scene.workers.keys()
    for url, page in through.items():
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            direct = parse(answer.read().decode(), only=METRICS)
        assert isinstance(direct, Exposition)
        assert {(s.name, s.labels) for s in page.samples} == {
            (s.name, s.labels) for s in direct.samples
        }
        for metric in FIXED:  # others may have moved since the last scrape
            assert page.named(metric) == direct.named(metric) != ()
        assert [level.rank for level in levels_in(page)] == [None]


def test_pools_over_time(scene: Scene) -> None:
    reader = Prometheus(scene.server())
    names = {url: f"W{n}" for n, url in enumerate(scene.workers)}

    async def series() -> dict[str, tuple[float, ...]]:
        found = await reader.series(await reader.workers(), names, 3_600.0)
        assert {s.source for s in found} == {"Prometheus"}
        assert all(s.peak_tokens is not None for s in found)
        assert all(s.pool_tokens for s in found)
        return {s.worker: s.at_seconds for s in found}

    times = run(series())
    assert sorted(times) == sorted(names.values())
    for at in times.values():
        assert at
        assert all(0 < second <= 3_600 for second in at)
        assert list(at) == sorted(set(at))


def test_a_target_that_is_down_tells_nothing_and_is_said_to(scene: Scene) -> None:
    reader = Prometheus(scene.server("lame"))
    found = run(reader.workers())
    assert sorted((w.fresh, w.role or "-") for w in found.workers) == [
        (False, Role.DECODE),
        (True, "-"),
    ]
    assert [note.partition(" says of ")[2][:17] for note in found.notes[:1]] == [
        "1 of 2 targets no"
    ]
    assert "role label" in found.notes[1]
    assert len(run(reader.pages(METRICS, found))) == 1


def test_a_scrape_of_long_ago_tells_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcanary.telemetry.prometheus.STALE_SECONDS", -1.0)
    reader = Prometheus(scene.server())
    found = run(reader.workers())
    assert len(found.workers) == 4
    assert not any(w.fresh for w in found.workers)
    assert run(reader.pages(METRICS, found)) == ()


def gpus(scene: Scene, *sources: GpuSource) -> GpusSeen:
    async def seen() -> GpusSeen:
        endpoint = Endpoint("http://127.0.0.1:1/v1", "tiny")
        async with (
            Client(endpoint) as client,
            GpuWatch(client, sources, PrometheusServer(scene.url)) as watch,
        ):
            return await watch.read()

    return run(seen())


def test_gpus_through_prometheus(scene: Scene) -> None:
    l4 = GpuSource(GpuReader.DCGM, selector=(("Hostname", "i-030791dc5a37cd257"),), worker="w")
    t4 = GpuSource(GpuReader.DCGM, selector=(("modelName", "Tesla T4"),))
    seen = gpus(scene, l4, t4)
    assert seen.notes == ()
    assert [(g.worker, g.host, g.index, g.name, g.total_bytes) for g in seen.gpus] == [
        ("w", "i-030791dc5a37cd257", 0, "NVIDIA L4", (22_563 + 470) << 20),
        (None, "cp-bm14r7", 0, "Tesla T4", (9_791 + 5_120 + 447) << 20),
    ]
    assert {g.source for g in seen.gpus} == {"DCGM, Prometheus"}


def test_gpus_that_prometheus_cannot_tell(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = GpuSource(GpuReader.DCGM, selector=(("Hostname", "nowhere"),))
    anywhere = GpuSource(GpuReader.DCGM)
    absent = GpuSource(GpuReader.DCGM, indices=(7,), selector=(("job", "gpu"),))
    seen = gpus(scene, nowhere, anywhere, absent)
    assert seen.gpus == ()
    assert len(seen.notes) == 2
    monkeypatch.setattr("kvcanary.telemetry.gpus.STALE_SECONDS", -1.0)
    seen = gpus(scene, GpuSource(GpuReader.DCGM, selector=(("job", "gpu"),)))
    assert seen.gpus == ()
    (note,) = seen.notes
    assert note.startswith("2 GPUs are unknown")


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (PrometheusServer("{url}", (("job", "nobody"),)), "scrapes no target"),
        (PrometheusServer("{url}"), "has no selector"),
        (PrometheusServer("{url}/elsewhere", (("job", "llm"),)), "did not tell its targets (path_"),
    ],
)
def test_what_cannot_be_had_is_said(scene: Scene, server: PrometheusServer, said: str) -> None:
    server = PrometheusServer(server.url.replace("{url}", scene.url), server.selector)
    found = run(Prometheus(server).workers())
    assert found.workers == ()
    (note,) = found.notes
    assert said in note


def test_workers_that_tell_the_sampler_nothing_have_their_series_from_prometheus(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = next(iter(scene.workers))

    async def mostly_silent(_client: Client, asked: Worker, *_: object) -> tuple[Level, ...]:
        return (Level(None, used_tokens=7),) if asked.url == heard else ()

    monkeypatch.setattr("kvcanary.telemetry.sampler.read_levels", mostly_silent)
    boxes = [builders.worker(Role(role), url=url) for url, role in scene.workers.items()]

    async def sampled() -> tuple[Series, ...]:
        async with Sampler(
            Endpoint("http://127.0.0.1:1/v1", "tiny"),
            boxes,
            short_names(boxes),
            with_key=False,
            prometheus=scene.server(),
        ) as sampler:
            sampler._began -= 3_600.0  # a long run, of which Prometheus has seen the end
        return sampler.series()

    series = {one.worker: one for one in run(sampled())}
    assert sorted(series) == ["D1", "D2", "P1", "P2"]
    assert (series["P1"].source, series["P1"].peak_tokens) == ("the worker's own figures", 7)
    for name in ("P2", "D1", "D2"):
        assert series[name].source == "Prometheus"
        assert series[name].at_seconds
        assert series[name].pool_tokens


# discovery through it


def test_workers_are_discovered_through_it_where_nobody_names_them(scene: Scene) -> None:
    """The front door lists nobody: targets are the workers, and roles are those of the label."""

    async def discovered() -> Facts:
        async with (
            rogue_server(not_found) as front,
            Client(Endpoint(front.base_url, "glm-5.3-lab")) as client,
        ):
            return await discover(client, 4_096, prometheus=Prometheus(scene.server()))

    facts = run(discovered())
    assert {w.url: w.role for w in facts.workers} == scene.workers
    assert all(w.engine == "sglang" and w.pool_tokens for w in facts.workers)
    assert capacity.assessed(facts)
    assert facts.notes == ()


def test_its_last_scrape_speaks_for_a_worker_that_cannot_be_reached(scene: Scene) -> None:
    """A bare address is scraped by Prometheus and closed to us: figures come from its metrics."""

    class Closed(Prometheus):
        async def workers(self) -> Found:
            found = await super().workers()
            return replace(found, workers=tuple(map(moved_away, found.workers)))

    def moved_away(worker: ScrapedWorker) -> ScrapedWorker:
        return replace(worker, url=worker.url and worker.url.replace("127.0.0.1", "127.0.0.9"))

    async def discovered() -> Facts:
        async with (
            rogue_server(not_found) as front,
            Client(Endpoint(front.base_url, "glm-5.3-lab")) as client,
        ):
            reader = Closed(scene.server())
            return await discover(client, 4_096, prometheus=reader, deadline_seconds=1.0)

    facts = run(discovered())
    assert len(facts.workers) == 4
    for worker in facts.workers:
        assert worker.source == "/metrics"
        assert (worker.engine, worker.context_tokens) == ("sglang", 4_096)
        assert worker.pool_tokens
        assert worker.limit_tokens == min(worker.pool_tokens, 4_096) - 7


async def not_found(call: Call) -> None:
    await call.answer(404)

"""What is made of a Prometheus server's answers: addresses, ages, roles, labels, ranks over time."""

import math
from collections.abc import Mapping

import pytest

from kvcanary.deployment.facts import Role
from kvcanary.deployment.target import PrometheusServer
from kvcanary.engines.exposition import Sample
from kvcanary.probing.outcome import Reason
from kvcanary.telemetry.prometheus import Found, Prometheus, ScrapedWorker
from kvcanary.telemetry.prometheus_api import PrometheusApi, Row, Rows, Scrape
from tests.probing.rogue_server import run

NOW = 1_790_000_000.0
SERVER = PrometheusServer("http://prom", (("job", "llm"),), role_label="role")


class Told(PrometheusApi):
    """A server that has answers for some queries, by how they begin."""

    def __init__(
        self, answers: Mapping[str, Rows | Reason], scrapes: tuple[Scrape, ...] | Reason = ()
    ) -> None:
        super().__init__(SERVER)
        self.answers, self.scrapes = answers, scrapes
        self.asked: list[str] = []

    async def query(self, promql: str, at: float | None = None) -> Rows | Reason:
        self.asked.append(f"{promql} @ {at}")
        found = (rows for start, rows in self.answers.items() if promql.startswith(start))
        return next(found, Reason.SERVER_ERROR)

    async def targets(self) -> tuple[Scrape, ...] | Reason:
        return self.scrapes


def labels(instance: str = "a:1", **more: str) -> dict[str, str]:
    return {"job": "llm", "instance": instance, **more}


def workers(
    up: float = 1,
    age: float = 5,
    scrapes: tuple[Scrape, ...] | Reason = (),
    *,
    instance: str = "a:1",
    **more: str,
) -> Found:
    mine = labels(instance, **more)
    answers = {
        "up{": (Row({"__name__": "up", **mine}, ((NOW, up),)),),
        "timestamp(": (Row(mine, ((NOW, NOW - age),)),),
    }
    return run(Prometheus(SERVER, Told(answers, scrapes)).workers())


@pytest.mark.parametrize(
    ("up", "age", "fresh"),
    [(1, 5, True), (1, 120, True), (1, 121, False), (1, -1, False), (0, 5, False), (2, 5, False)],
)
def test_only_what_was_up_a_moment_ago_counts(up: float, age: float, *, fresh: bool) -> None:
    found = workers(up, age)
    assert found.workers[0].fresh is fresh
    assert any("nothing that counts" in note for note in found.notes) is not fresh


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("prefill", Role.PREFILL),
        ("Decode", Role.DECODE),
        ("regular", Role.UNIFIED),
        ("both", Role.UNIFIED),
        ("router", None),
        ("", None),
    ],
)
def test_roles(role: str, said: Role | None) -> None:
    found = workers(role=role)
    assert found.workers[0].role is said
    assert any("role label" in note for note in found.notes) is (said is None)


@pytest.mark.parametrize(
    ("url", "worker", "metrics"),
    [
        (None, "http://a:1", None),
        ("http://a:1/metrics", "http://a:1", None),
        ("https://h/w1/metrics?x=secret", "https://h/w1", None),
        ("http://a:1/prometheus/all", "http://a:1", "http://a:1/prometheus/all"),
        ("http://u:p@a:1/metrics", None, None),
        ("file:///etc/passwd", None, None),
        ("http://a b/metrics", None, None),
    ],
)
def test_addresses(url: str | None, worker: str | None, metrics: str | None) -> None:
    scrapes = (
        Scrape(labels("b:2"), "http://b:2/metrics"),
        *([Scrape(labels(), url)] if url else []),
    )
    found = workers(scrapes=scrapes)
    assert (found.workers[0].url, found.workers[0].metrics_url) == (worker, metrics)
    assert any("without a plain" in note for note in found.notes) is (worker is None)


def test_a_store_that_does_not_scrape_tells_the_instance_only() -> None:
    assert workers(scrapes=Reason.PATH_NOT_FOUND).workers[0].url == "http://a:1"
    assert workers(instance="not an address").workers[0].url is None


@pytest.mark.parametrize("missing", ["up{", "timestamp("])
def test_half_an_answer_is_none(missing: str) -> None:
    answers: dict[str, Rows | Reason] = {"up{": (), "timestamp(": ()}
    answers[missing] = Reason.DEADLINE
    found = run(Prometheus(SERVER, Told(answers)).workers())
    assert found.workers == ()
    assert "did not tell its targets (deadline)" in found.notes[0]


A = ScrapedWorker("http://a:1", None, Role.DECODE, True, labels(model_name="theirs"))


def test_labels_of_the_target_go_and_what_they_hid_comes_back() -> None:
    series = {**labels(model_name="theirs", exported_model_name="own", exported_x="y")}
    row = Row({"__name__": "m", **series}, ((NOW, 1.0), (NOW, 7.0)))
    stranger = Row({"__name__": "m", **labels("b:2")}, ((NOW, 9.0),))
    told = Told({"{": (row, stranger)})
    (page,) = run(Prometheus(SERVER, told).pages(["m"], Found((A,))))
    assert page.url == "http://a:1"
    assert page.page.samples == (Sample("m", (("exported_x", "y"), ("model_name", "own")), 7.0),)
    assert told.asked == ['{__name__=~"m",job="llm"} @ None']


def test_an_old_target_is_not_asked_about() -> None:
    told = Told({})
    old = ScrapedWorker("http://a:1", None, Role.DECODE, False, labels())
    assert run(Prometheus(SERVER, told).pages(["m"], Found((old,)))) == ()
    assert told.asked == []


def used(rank: str, *points: tuple[float, float]) -> Row:
    name = {"__name__": "sglang:kv_used_tokens", "dp_rank": rank}
    return Row({**name, **labels()}, points)


def test_pools_of_ranks_over_a_long_run() -> None:
    """In pieces, by the server's clock, each scrape once though the pieces touch."""
    rows = (
        used("0", (NOW - 600, 1.0), (NOW - 5, 9.0)),
        used("1", (NOW - 600, 4.0), (NOW - 5, math.nan)),
    )
    told = Told({"vector": (Row({}, ((NOW, NOW),)),), "{": rows})
    reader = Prometheus(SERVER, told)
    first, second = run(reader.series(Found((A,)), {"http://a:1": "D1"}, 1_500.0))
    assert (first.worker, first.used_tokens, first.last_tokens) == ("D1.0", (1, 9), 9)
    assert first.at_seconds == (900.0, 1_495.0)
    assert (second.worker, second.used_tokens) == ("D1.1", (4, None))
    assert [asked.rpartition("[")[2] for asked in told.asked[1:]] == [
        f"600000ms] @ {NOW - 900}",
        f"600000ms] @ {NOW - 300}",
        f"300000ms] @ {NOW}",
    ]


def test_no_clock_no_series() -> None:
    reader = Prometheus(SERVER, Told({"{": (used("0", (NOW, 1.0)),)}))
    assert run(reader.series(Found((A,)), {"http://a:1": "D1"}, 10.0)) == ()

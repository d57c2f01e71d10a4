"""Counters of a worker: captured pages, a real lab, and pages that lie."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvcanary.engines.gauges import Level
from kvcanary.lab import Lab, scenario_named
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, PlainText, Request, SecretKey
from kvcanary.telemetry.counters import (
    RankCounters,
    WorkerCounters,
    counters_in,
    moved,
    read_counters,
)
from tests.probing.rogue_server import Call, Handler, rogue_server, run

PAYLOADS = Path(__file__).parent / "payloads"
SGLANG = (PAYLOADS / "sglang-0.5.23.prom").read_text(encoding="utf-8")
VLLM = (PAYLOADS / "vllm-0.32.0.prom").read_text(encoding="utf-8")
URL = "http://worker"


def counters(text: str) -> WorkerCounters:
    got = counters_in(URL, text)
    assert got is not None
    return got


def vllm(engine: int, prompt: object = 10, generation: object = 2, done: object = 1) -> str:
    return (
        f'vllm:num_requests_running{{engine="{engine}"}} 0\n'
        f'vllm:prompt_tokens_total{{engine="{engine}"}} {prompt}\n'
        f'vllm:generation_tokens_total{{engine="{engine}"}} {generation}\n'
        f'vllm:request_success_total{{engine="{engine}",finished_reason="stop"}} {done}\n'
        f'vllm:request_success_total{{engine="{engine}",finished_reason="length"}} 3\n'
    )


def started(seconds: object) -> str:
    return f"process_start_time_seconds {seconds}\n"


# captured


def test_sglang_with_one_rank() -> None:
    got = counters(SGLANG)
    assert got.ranks == (RankCounters(None, 2608, 233, 24),)
    assert (got.prompt_tokens, got.generation_tokens, got.requests) == (2608, 233, 24)
    assert got.started_at is None  # it runs several processes and tells no start


def test_vllm_with_one_engine() -> None:
    got = counters(VLLM)
    assert got.ranks == (RankCounters(0, 1346, 34, 9),)
    assert got.started_at == 1796053255.47


def test_an_engine_that_is_neither() -> None:
    llamacpp = (PAYLOADS / "llamacpp.prom").read_text(encoding="utf-8")
    assert counters_in(URL, llamacpp) is None
    assert counters_in(URL, SGLANG + VLLM) is None
    assert counters_in(URL, "") is None


# ranks


def test_vllm_engines_are_ranks() -> None:
    got = counters(vllm(10, 5) + vllm(2))
    assert got.ranks == (RankCounters(2, 10, 2, 4), RankCounters(10, 5, 2, 4))
    assert (got.prompt_tokens, got.generation_tokens, got.requests) == (15, 4, 8)
    assert got.whole is None


def with_ranks(text: str, *ranks: int) -> str:
    """What the schedulers write in a captured page, once for each DP rank: rank n counts n more.

    Tensor ranks are numbered through, and each rank has a second one that counts the same again.
    """
    lines = []
    for line in text.splitlines():
        if 'tp_rank="0"' not in line or "dp_rank" in line:
            lines.append(line)
            continue
        series, _, value = line.rpartition(" ")
        for rank in ranks:
            for tensor in (2 * rank + 1, 2 * rank):
                labels = series.replace('tp_rank="0"', f'tp_rank="{tensor}",dp_rank="{rank}"')
                lines.append(f"{labels} {float(value) + rank}")
    return "\n".join(lines)


def test_sglang_ranks_are_counted_by_their_schedulers_and_the_worker_by_its_tokenizer() -> None:
    got = counters(with_ranks(SGLANG, 0, 1))
    assert got.ranks == (RankCounters(0, 2608, 209, None), RankCounters(1, 2610, 210, None))
    assert got.whole == RankCounters(None, 2608, 233, 24)
    assert (got.prompt_tokens, got.generation_tokens, got.requests) == (2608, 233, 24)


def test_sglang_counters_with_a_rank_label_are_taken_by_rank() -> None:
    labelled = SGLANG.replace('is_streaming="', 'dp_rank="3",is_streaming="')
    got = counters(labelled)
    assert got.ranks == (RankCounters(3, 2608, 233, 24),)
    assert got.whole is None


def test_a_rank_whose_label_is_no_number_is_no_rank() -> None:
    got = counters(vllm(0).replace('"0"', '"' + "9" * 1_900 + '"'))
    assert [rank.rank for rank in got.ranks] == [None]
    assert got.prompt_tokens == 10


# unknown is never 0


def without(text: str, metric: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(metric))


def test_a_counter_that_is_missing_is_unknown() -> None:
    got = counters(without(SGLANG, "sglang:prompt_tokens_total"))
    assert got.ranks == (RankCounters(None, None, 233, 24),)
    assert got.prompt_tokens is None


def test_a_counter_that_one_rank_lacks_is_unknown_of_the_worker() -> None:
    got = counters(vllm(0) + without(vllm(1), "vllm:prompt_tokens_total"))
    assert [rank.prompt_tokens for rank in got.ranks] == [10, None]
    assert got.prompt_tokens is None
    assert got.generation_tokens == 4


def test_a_worker_that_has_done_nothing_yet_is_there_and_its_counts_are_unknown() -> None:
    idle = 'sglang:num_running_reqs{dp_rank="0"} 0\nsglang:num_running_reqs{dp_rank="1"} 0\n'
    got = counters(idle + started(5))
    nothing = RankCounters(None, None, None, None)
    assert got == WorkerCounters(
        URL,
        5,
        (replace(nothing, rank=0), replace(nothing, rank=1)),
        nothing,
        (Level(0, running=0), Level(1, running=0)),
    )
    assert got.requests is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", 1 << 54])
def test_a_value_that_is_no_count_is_unknown(value: object) -> None:
    got = counters(vllm(0, prompt=value, done=value) + started(value))
    assert got.ranks == (RankCounters(0, None, 2, None),)
    assert got.started_at is None


def test_several_start_times_are_no_start_time() -> None:
    text = 'process_start_time_seconds{pid="1"} 5\nprocess_start_time_seconds{pid="2"} 6\n'
    assert counters(vllm(0) + text).started_at is None


@pytest.mark.parametrize(
    "text",
    [
        vllm(0) + "vllm:prompt_tokens_total{ 1\n",
        vllm(0) + 'vllm:prompt_tokens_total{x="' + "v" * 1_000_000 + '"} 1\n',
        vllm(0) + " " * 4_000_000,
    ],
)
def test_a_page_that_is_malformed_where_it_counts_tells_nothing(text: str) -> None:
    assert counters_in(URL, text) is None


# moved


def test_how_far_each_rank_went() -> None:
    before = counters(vllm(0) + vllm(1) + started(5))
    after = counters(vllm(0) + vllm(1, 17, 5, 2) + started(5))
    moves = moved(before, after)
    assert moves is not None
    assert moves.ranks == (RankCounters(0, 0, 0, 0), RankCounters(1, 7, 3, 1))
    assert (moves.prompt_tokens, moves.generation_tokens, moves.requests) == (7, 3, 1)


def test_how_far_a_worker_went_whose_ranks_are_counted_apart() -> None:
    before = counters(with_ranks(SGLANG, 0, 1))
    more = SGLANG.replace(" 1999.0", " 2000.0").replace(" 2356.0", " 2358.0")
    moves = moved(before, counters(with_ranks(more, 0, 1)))
    assert moves is not None
    assert moves.ranks == (RankCounters(0, 2, 0, None), RankCounters(1, 2, 0, None))
    assert moves.whole == RankCounters(None, 1, 0, 0)
    assert (moves.prompt_tokens, moves.requests) == (1, 0)


@pytest.mark.parametrize(
    "after",
    [
        vllm(0, 99, 99, 99) + vllm(1, 99, 99, 99) + started(6),
        vllm(0, 99, 99, 99) + vllm(1, 99, 99, 99),
        vllm(0, 99, 99, 99) + vllm(1, 9, 99, 99) + started(5),
        vllm(0, 99, 99, 0) + vllm(1, 99, 99, 99) + started(5),
    ],
    ids=["another start", "no start any more", "one counter down", "another one down"],
)
def test_a_process_that_began_anew_did_not_move(after: str) -> None:
    before = counters(vllm(0) + vllm(1) + started(5))
    assert moved(before, counters(after)) is None


def test_a_worker_that_began_anew_is_seen_by_its_own_counters_too() -> None:
    before, after = (
        counters(with_ranks(SGLANG.replace(" 1999.0", value), 0, 1)) for value in (" 5.0", " 4.0")
    )
    assert moved(before, after) is None


def test_what_either_reading_lacks_did_not_move() -> None:
    whole, part = vllm(0), without(vllm(0), "vllm:prompt_tokens_total")
    for before, after in ((whole, part), (part, whole)):
        moves = moved(counters(before), counters(after))
        assert moves is not None
        assert moves.ranks == (RankCounters(0, None, 0, 0),)
        assert moves.prompt_tokens is None


def test_a_rank_that_was_not_there_is_unknown_and_the_others_are_not() -> None:
    moves = moved(counters(vllm(0)), counters(vllm(0, 11) + vllm(1)))
    assert moves is not None
    assert moves.ranks == (RankCounters(0, 1, 0, 0), RankCounters(1, None, None, None))


def test_two_workers_are_not_compared() -> None:
    got = counters(vllm(0))
    assert moved(got, replace(got, url="http://other")) is None


# over HTTP


def reading(
    handler: Handler, *, with_key: bool = False, deadline_seconds: float = 60
) -> tuple[WorkerCounters | None, list[Call]]:
    async def exchange() -> tuple[WorkerCounters | None, list[Call]]:
        async with rogue_server(handler) as server:
            endpoint = Endpoint(server.base_url, "tiny", api_key=SecretKey("sk-1"))
            async with Client(endpoint) as client:
                url = server.base_url.removesuffix("/v1") + "/"
                got = await read_counters(
                    client, url, with_key=with_key, deadline_seconds=deadline_seconds
                )
            return got, server.calls

    return run(exchange())


def saying(text: str, status: int = 200, content_type: str = "text/plain") -> Handler:
    async def handler(call: Call) -> None:
        await call.answer(status, text.encode(), content_type)

    return handler


@pytest.mark.parametrize("with_key", [True, False])
def test_a_worker_is_asked_at_metrics_with_the_key_only_where_it_is_due(*, with_key: bool) -> None:
    got, (call,) = reading(saying(SGLANG), with_key=with_key)
    assert got is not None
    assert got.prompt_tokens == 2608
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", got.url)
    assert call.path == "/metrics"
    assert ("authorization" in call.headers) is with_key


async def silence(call: Call) -> None:
    await call.disconnected()


async def ten_megabytes(call: Call) -> None:
    await call.start_stream("text/plain")
    for _ in range(10):
        await call.say(b"vllm:prompt_tokens_total 1\n" * 40_000)


@pytest.mark.parametrize(
    "handler",
    [
        saying(VLLM, 501),
        saying(VLLM, 401),
        saying(VLLM, 302),
        saying("<html></html>", content_type="text/html"),
        saying(""),
        saying("[]"),
        ten_megabytes,
    ],
)
def test_a_worker_that_tells_nothing(handler: Handler) -> None:
    got, _ = reading(handler)
    assert got is None


def test_a_worker_that_does_not_answer() -> None:
    got, _ = reading(silence, deadline_seconds=0.1)
    assert got is None


# a lab


def in_the_lab(
    scenario: str, tokens: int, check: Callable[[dict[str, list[WorkerCounters]]], None]
) -> None:
    """Read every worker before and after one request of about so many words."""

    async def scene() -> None:
        box = scenario_named(scenario).scaled(context_tokens=4096)
        async with (
            Lab(box, seed=7) as lab,
            Client(Endpoint(f"{lab.url}/v1", lab.model_name)) as client,
        ):
            first = Request("first", PlainText("ferry " * 40), 8, "tenant-a")
            second = Request("second", PlainText("market " * tokens), 8, "tenant-b")
            readings: dict[str, list[WorkerCounters]] = {}
            for request in (first, second):
                await client.send(request, deadline_seconds=60)
                for _, url in lab.worker_urls:
                    got = await read_counters(client, url)
                    assert got is not None
                    readings.setdefault(url, []).append(got)
        check(readings)

    run(scene())


def test_a_healthy_lab_counts_the_same_prompt_on_both_sides() -> None:
    def check(readings: dict[str, list[WorkerCounters]]) -> None:
        prefill, decode = (moved(*two) for two in readings.values())
        assert prefill is not None
        assert decode is not None
        assert prefill.prompt_tokens == decode.prompt_tokens
        assert prefill.prompt_tokens is not None
        assert prefill.prompt_tokens > 1_000
        assert decode.generation_tokens is not None
        assert decode.generation_tokens > 0
        assert decode.requests == 1

    in_the_lab("healthy", 1_000, check)


def test_a_leaking_lab_counts_one_token_at_prefill() -> None:
    def check(readings: dict[str, list[WorkerCounters]]) -> None:
        prefill, decode = (moved(*two) for two in readings.values())
        assert prefill is not None
        assert decode is not None
        assert prefill.prompt_tokens == 1
        assert decode.prompt_tokens is not None
        assert decode.prompt_tokens > 3_000

    in_the_lab("glm-5.3", 3_000, check)


def test_a_lab_with_ranks_shows_which_of_them_decoded() -> None:
    def check(readings: dict[str, list[WorkerCounters]]) -> None:
        moves = [moved(*two) for two in readings.values()]
        (decode,) = (m for m in moves if m is not None and len(m.ranks) > 1)
        assert [rank.rank for rank in decode.ranks] == [0, 1, 2, 3]
        tokens = [rank.generation_tokens for rank in decode.ranks]
        assert sorted(t for t in tokens if t is not None)[:3] == [0, 0, 0]
        assert sum(t for t in tokens if t is not None) == decode.generation_tokens
        assert decode.requests == 1

    in_the_lab("dp4", 1_000, check)


# -- how busy a worker is -------------------------------------------------------------------------


@pytest.mark.parametrize("page", [SGLANG, VLLM])
def test_an_idle_engine_has_no_open_request(page: str) -> None:
    got = counters(page)
    assert (got.open_requests, got.used_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("text", "open_requests", "used_tokens"),
    [
        (
            (
                'sglang:num_running_reqs{dp_rank="0"} 1\nsglang:num_queue_reqs{dp_rank="0"} 0\n'
                'sglang:num_running_reqs{dp_rank="1"} 2\nsglang:num_queue_reqs{dp_rank="1"} 0\n'
                'sglang:num_decode_transfer_queue_reqs{dp_rank="1"} 4\n'
                'sglang:kv_used_tokens{dp_rank="0"} 5\nsglang:kv_used_tokens{dp_rank="1"} 6\n'
            ),
            7,
            11,
        ),
        ("vllm:num_requests_running 1\nvllm:num_requests_waiting 1\n", 2, None),
        ("vllm:num_requests_running 1\n", None, None),  # a queue that is not told may be full
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n", None, None),
    ],
)
def test_open_requests_and_what_they_hold(
    text: str, open_requests: int | None, used_tokens: int | None
) -> None:
    got = counters(text)
    assert (got.open_requests, got.used_tokens) == (open_requests, used_tokens)

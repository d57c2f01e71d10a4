"""How full a rank is: captured pages and loads, ranks, and what is nonsense."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.engines import sglang as sglang_engine
from kvcanary.engines.documents import Documents
from kvcanary.engines.exposition import Exposition, parse
from kvcanary.engines.gauges import GAUGES, Level, levels_in_loads
from kvcanary.engines.levels import PAGE, levels_in, levels_of, wants_of
from tests.builders import worker

PAYLOADS = Path(__file__).parent.parent / "telemetry" / "payloads"
SGLANG = (PAYLOADS / "sglang-0.5.23.prom").read_text(encoding="utf-8")
VLLM = (PAYLOADS / "vllm-0.32.0.prom").read_text(encoding="utf-8")
# captured from SGLang 0.5.23, less what is not read
LOAD: dict[str, object] = {
    "dp_rank": 0,
    "num_running_reqs": 0,
    "num_waiting_reqs": 0,
    "num_used_tokens": 0,
    "max_total_num_tokens": 700,
    "token_usage": 0.0,
    "disaggregation": {
        "mode": "null",
        "prefill_bootstrap_queue_reqs": 0,
        "decode_transfer_queue_reqs": 0,
    },
}


def levels_in_text(text: str) -> tuple[Level, ...]:
    page = parse(text)
    return levels_in(page) if isinstance(page, Exposition) else ()


def test_captured_pages() -> None:
    assert levels_in_text(SGLANG) == (Level(None, 700, 0, 0, 0, None),)
    assert levels_in_text(VLLM) == (Level(None, 608, 0, 0, 0, None),), "less the null block"


def test_captured_loads() -> None:
    assert levels_in_loads({"version": "0.5.23", "loads": [LOAD]}) == (
        Level(None, 700, 0, 0, 0, None),
    )


def documents(page: str = "", loads: object = None, path: str = PAGE.path) -> Documents:
    parsed = parse(page)
    assert isinstance(parsed, Exposition)
    return Documents({sglang_engine.LOADS.path: loads}, {path: parsed})


def test_loads_are_of_this_moment_and_failures_are_on_the_page() -> None:
    """SGLang's gauges are as old as its last line of log."""
    page = "sglang:num_running_reqs 5\nsglang:num_transfer_failed_reqs_total 3\n"
    box = worker(engine="sglang")
    assert levels_of(box, documents(page, {"loads": [LOAD]})) == (Level(None, 700, 0, 0, 0, 3),)
    assert levels_of(box, documents(page)) == (Level(None, running=5, failures=3),)
    assert levels_of(box, documents()) == ()


def test_another_engine_tells_what_its_own_documents_do() -> None:
    box = worker(engine="tensorrt-llm")
    (want,) = wants_of(box.engine)
    page = (
        "trtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_used_blocks 25\n"
        "trtllm_kv_cache_tokens_per_block 32\n"
    )
    assert levels_of(box, documents(page, path=want.path)) == (Level(None, 3_200, 800),)
    assert levels_of(worker(engine="nobody"), documents(page)) == ()
    assert wants_of("nobody") == (PAGE,)


@pytest.mark.parametrize(
    ("waiting", "handing_over", "queued"),
    [(3, 1, 3), (1, 3, 6), (0, 0, 0), (None, 2, 4), (5, None, 5), (None, None, None)],
)
def test_whether_the_waiting_count_those_that_are_handed_over_differs_by_version(
    waiting: int | None, handing_over: int | None, queued: int | None
) -> None:
    queues = {
        "prefill_bootstrap_queue_reqs": handing_over,
        "decode_transfer_queue_reqs": handing_over,
    }
    load = {**LOAD, "num_waiting_reqs": waiting, "disaggregation": queues}
    (level,) = levels_in_loads({"loads": [load]})
    assert level.queued == queued


def test_a_page_of_none_or_of_two_engines_tells_nothing() -> None:
    llamacpp = (PAYLOADS / "llamacpp.prom").read_text(encoding="utf-8")
    for text in (llamacpp, SGLANG + VLLM, "", "<html>", "sglang:num_running_reqs{"):
        assert levels_in_text(text) == ()


def sglang(
    rank: int, tensor: int = 0, used: object = 5, more: Mapping[str, object] | None = None
) -> str:
    labels = f'{{dp_rank="{rank}",tp_rank="{tensor}"}}'
    told = {
        "max_total_num_tokens": 100,
        "num_used_tokens": used,
        "num_running_reqs": 1,
        **(more or {}),
    }
    return "".join(f"sglang:{name}{labels} {value}\n" for name, value in told.items())


def test_ranks_are_told_apart_and_their_copies_are_not_added() -> None:
    page = sglang(10, used=7) + sglang(2, 3, used=9) + sglang(2, 2, used=5)
    assert levels_in_text(page) == (Level(2, 100, 5, 1), Level(10, 100, 7, 1))


def test_queues_and_failures_are_added_where_they_are_told() -> None:
    (level,) = levels_in_text(
        sglang(
            0,
            more={
                "num_queue_reqs": 1,
                "num_decode_prealloc_queue_reqs": 2,
                "num_decode_transfer_queue_reqs": 3,
                "num_transfer_failed_reqs_total": 4,
            },
        )
    )
    assert (level.queued, level.failures) == (5, 4)
    (level,) = levels_in_text(
        sglang(
            0,
            more={"num_queue_reqs": 9, "num_prefill_prealloc_queue_reqs": 2, "kv_used_tokens": 6},
        )
    )
    assert (level.queued, level.used_tokens) == (9, 6)


@pytest.mark.parametrize(
    ("share", "used"),
    [("0.5", 304), ("1", 608), ("0", 0), ("1.01", None), ("-1", None), ("NaN", None)],
)
def test_a_share_of_a_known_pool_is_tokens(share: str, used: int | None) -> None:
    usage = 'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"}'
    text = VLLM.replace(f"{usage} 0.0", f"{usage} {share}")
    assert text != VLLM
    (level,) = levels_in_text(text)
    assert (level.pool_tokens, level.used_tokens) == (608, used)


def test_a_share_of_an_unknown_pool_is_unknown() -> None:
    # an older vLLM: blocks only, which are the sum over all ranks
    text = VLLM.replace('kv_cache_size_tokens="640"', 'num_cpu_blocks_="0"')
    (level,) = levels_in_text(text)
    assert (level.pool_tokens, level.used_tokens, level.running) == (None, None, 0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "0.5"])
@pytest.mark.parametrize("name", ["num_used_tokens", "num_running_reqs", "num_queue_reqs"])
def test_what_is_no_count_is_unknown(name: str, value: str) -> None:
    (level,) = levels_in_text(sglang(0, more={name: value}))
    fields = {"num_used_tokens": "used_tokens", "num_running_reqs": "running"}
    assert getattr(level, fields.get(name, "queued")) is None


@pytest.mark.parametrize("value", [True, -1, 1.5, "5", None, 1 << 53, [], {}])
def test_a_load_that_is_no_count_is_unknown(value: object) -> None:
    load = {**LOAD, "num_running_reqs": value}
    (level,) = levels_in_loads({"loads": [load]})
    assert level == Level(None, 700, 0, None, 0)


def test_ranks_of_loads() -> None:
    rows = [{**LOAD, "dp_rank": r, "num_used_tokens": 9 + r} for r in (1, 0)]
    assert [(level.rank, level.used_tokens) for level in levels_in_loads({"loads": rows})] == [
        (1, 10),
        (0, 9),
    ]
    del rows[0]["dp_rank"]
    assert len(levels_in_loads({"loads": rows})) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*LOAD, "loads", "x"]),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_no_document_raises_or_gives_what_is_no_count(document: object) -> None:
    json.dumps(document)
    for level in levels_in_loads(document):
        for value in (level.pool_tokens, level.used_tokens, level.running, level.queued):
            assert value is None or 0 <= value < 1 << 55


def test_no_metric_is_of_two_engines() -> None:
    names = [name for gauges in GAUGES for name in gauges.metrics]
    assert len(names) == len(set(names))

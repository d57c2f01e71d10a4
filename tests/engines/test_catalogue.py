"""Which engine a server is, what it is asked for, and that no document can make one raise or lie."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.canary.sitekey import SiteKey
from kvcanary.engines import catalogue, llamacpp, sglang, tgi, vllm
from kvcanary.engines.documents import Documents, version
from kvcanary.engines.engine import Engine
from kvcanary.engines.exposition import Exposition, Sample
from kvcanary.engines.fingerprint import fingerprint
from tests.engines import captures
from tests.engines.captures import answer, documents

SERVERS = (
    (captures.sglang(), sglang.ENGINE),
    (captures.vllm(), vllm.ENGINE),
    (captures.llamacpp(), llamacpp.ENGINE),
    (documents(info=answer("tgi-3.2.1-info.json")), tgi.ENGINE),
)


@pytest.mark.parametrize(("server", "engine"), SERVERS, ids=[e.name for _, e in SERVERS])
def test_a_captured_server_is_told_by_what_it_answers(server: Documents, engine: Engine) -> None:
    speaking = [other.name for other in catalogue.ENGINES if other.speaks(server)]
    assert speaking == [engine.name]


def test_names_are_different_and_found() -> None:
    assert len({engine.name for engine in catalogue.ENGINES}) == len(catalogue.ENGINES)
    assert all(catalogue.named(engine.name) is engine for engine in catalogue.ENGINES)
    assert catalogue.named(catalogue.UNKNOWN) is None


def test_a_page_of_two_engines_is_of_neither() -> None:
    both = "sglang:max_total_num_tokens 700\nvllm:kv_cache_usage_perc 0.5\n"
    assert catalogue.engine_of(documents(both)) is None


@pytest.mark.parametrize(("server", "engine"), SERVERS, ids=[e.name for _, e in SERVERS])
def test_asking_comes_to_an_end_and_asks_nothing_twice(server: Documents, engine: Engine) -> None:
    asked = [catalogue.FIRST.path]
    seen = Documents({k: v for k, v in server.values.items() if k in asked})
    while wants := catalogue.wanted(seen, asked):
        asked += [want.path for want in wants]
        seen = Documents(
            {k: v for k, v in server.values.items() if k in asked},
            {k: v for k, v in server.pages.items() if k in asked},
        )
    assert len(asked) == len(set(asked))
    assert {want.path for want in engine.wants} <= set(asked)
    assert len(asked) < 14


def test_who_owns_the_models_is_a_hint_and_no_proof() -> None:
    """Routers and gateways write it too."""
    said = documents(v1_models={"data": [{"id": "m", "owned_by": "sglang"}]})
    assert catalogue.engine_of(said) is None
    asked = {"/v1/models"}
    assert catalogue.wanted(said, asked) == sglang.ENGINE.wants
    asked |= {want.path for want in sglang.ENGINE.wants}
    assert {want.path for want in catalogue.wanted(said, asked)} >= {"/props", "/info"}


def test_an_unknown_server_keeps_what_its_models_tell() -> None:
    given = documents(v1_models={"data": [{"id": "m", "max_model_len": 4_096}]})
    found = catalogue.described("http://w", given)
    assert (found.engine, found.context_tokens, found.pool_tokens) == ("unknown", 4_096, None)
    assert "pool_tokens" in {unknown.figure for unknown in found.untold}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("0.5.23", "0.5.23"),
        ("0.11.0rc2", "0.11.0rc2"),
        ("0.9.1.post1+cu128", "0.9.1.post1"),
        ("1.0.0rc1.dev12", "1.0.0rc1.dev12"),
        ("0.32.1.dev17+g0123abc", "0.32.1.dev17"),
        ("v1.2", "1.2"),
        ("3", None),
        ("0.5.23 sk-SECRET", None),
        ("sk-1.2", None),
        ("1." * 500, None),
        (7, None),
        (None, None),
    ],
)
def test_versions_and_nothing_else(text: object, kept: str | None) -> None:
    assert version(text) == kept


# any document at all

NAMES = sorted(
    {
        *("max_total_num_tokens", "max_req_input_len", "context_length", "page_size", "version"),
        *(
            "disaggregation_mode",
            "internal_states",
            "loads",
            "data",
            "id",
            "max_model_len",
            "dp_size",
        ),
        *(
            "dp_rank",
            "num_used_tokens",
            "memory_usage",
            "token_capacity",
            "kvcache",
            "models",
            "digest",
        ),
        *("default_generation_settings", "n_ctx", "total_slots", "num_gpu_blocks", "block_size"),
        *("vllm_config", "parallel_config", "data_parallel_size", "kv_transfer_config", "kv_role"),
        *("scheduler_config", "model_config", "max_input_tokens", "max_total_tokens", "owned_by"),
        *("mem_fraction_static", "hicache_ratio", "hicache_size", "enable_hierarchical_cache"),
        *("num_waiting_reqs", "num_tokens", "tp_size", "served_model_name", "root", "build_info"),
    }
)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats() | st.integers(0, 9)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | st.sampled_from(["prefill", "0.5.1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=12,
)  # fmt: skip
PATHS = sorted(
    {w.path for e in catalogue.ENGINES for w in e.wants if not w.metrics}
    | {"/v1/models", "/get_server_info", "/get_load"}
)
LABELS = ("engine", "dp_rank", "tp_rank", "block_size", "num_gpu_blocks", "kv_cache_size_tokens",
          "kv_cache_memory_bytes", "num_gpu_blocks_override", "gpu_memory_utilization", "num_pages",
          "page_size", "kv_cache_block_type", "engine_type")  # fmt: skip
LABEL_VALUES = (
    st.text(max_size=4) | NUMBERS.map(str) | st.sampled_from(["None", "max", "used", "0"])
)
SAMPLES = st.builds(
    Sample,
    st.sampled_from(sorted(catalogue.METRICS)),
    st.dictionaries(st.sampled_from(LABELS), LABEL_VALUES, max_size=5).map(
        lambda d: tuple(d.items())
    ),
    st.floats() | st.integers(0, 10**6).map(float),
)
PAGES = st.lists(SAMPLES, max_size=8).map(lambda samples: Exposition(tuple(samples)))
ANY = st.builds(
    Documents,
    st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=5),
    st.dictionaries(st.sampled_from(["/metrics", "/prometheus/metrics"]), PAGES, max_size=2),
)
FIGURES = ("pool_tokens", "limit_tokens", "context_tokens", "page_tokens", "used_tokens",
           "host_pool_tokens", "slots", "bytes_per_token")  # fmt: skip


@pytest.mark.parametrize("engine", catalogue.ENGINES, ids=lambda engine: engine.name)
@given(server=ANY)
@settings(max_examples=50)
def test_no_document_makes_an_engine_raise(engine: Engine, server: Documents) -> None:
    engine.speaks(server)
    engine.older(server)
    if (arguments := engine.arguments(server)) is not None:
        assert len(fingerprint(SiteKey(b"k" * 32), engine.name, arguments)) == 16
    found = engine.worker("http://w", server)
    for figure in FIGURES:
        value = getattr(found, figure)
        assert value is None or 0 <= value < 1 << 54, figure
    assert len(found.ranks) <= 4_097
    json.dumps(found.model_dump(mode="json"), allow_nan=False)
    told = {source.figure for source in found.told}
    for figure in ("pool_tokens", "limit_tokens", "context_tokens", "used_tokens", "page_tokens"):
        assert getattr(found, figure) is None or figure in told, "a figure without a source"


@given(server=ANY)
@settings(max_examples=80)
def test_no_document_makes_the_catalogue_raise_or_ask_for_ever(server: Documents) -> None:
    catalogue.described("http://w", server)
    asked = {catalogue.FIRST.path}
    rounds = 0
    while wants := catalogue.wanted(server, asked):
        asked |= {want.path for want in wants}
        rounds += 1
    assert rounds < 8


NONSENSE: tuple[Any, ...] = (True, "700", 7.5, -1, 0, [700], {"a": 700}, None, 10**30, float("nan"))


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_no_figure_comes_from_nonsense(value: Any) -> None:
    info = dict.fromkeys(
        ("max_total_num_tokens", "max_req_input_len", "context_length", "page_size", "dp_size"),
        value,
    )
    found = sglang.ENGINE.worker("u", documents(server_info=info))
    assert [getattr(found, figure) for figure in FIGURES] == [None] * len(FIGURES)
    found = llamacpp.ENGINE.worker(
        "u",
        documents(props={"default_generation_settings": {"n_ctx": value}, "total_slots": value}),
    )
    assert [getattr(found, figure) for figure in FIGURES] == [None] * len(FIGURES)
    models = {"data": [{"id": "m", "max_model_len": value}]}
    text = f'vllm:cache_config_info{{block_size="{value!r}",kv_cache_size_tokens="{value!r}"}} 1\n'
    if '"' not in repr(value):
        found = vllm.ENGINE.worker("u", documents(text, v1_models=models))
        assert [getattr(found, figure) for figure in FIGURES] == [None] * len(FIGURES)


# fingerprints


def mark(**arguments: object) -> str:
    return fingerprint(SiteKey(b"k" * 32), "sglang", arguments)


def test_a_fingerprint_tells_a_change_and_nothing_else() -> None:
    assert mark(a=1, b=[2, {"c": 3}]) == mark(b=[2, {"c": 3}], a=1)
    assert mark(a=1) != mark(a=2)
    assert mark(a={"b": 1}) != mark(a={"b": 2})
    theirs = fingerprint(SiteKey(b"x" * 32), "sglang", {"a": 1})
    assert mark(a=1) != theirs, "nobody without the site key can try values out"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "admin_api_key",
        "ssl_keyfile_password",
        "hf_token",
        "secret",
        "AUTH",
        "watermark_key",
    ],
)
def test_a_new_secret_is_no_change(name: str) -> None:
    assert mark(a=1, **{name: "old"}) == mark(a=1, **{name: "new"}) == mark(a=1)
    assert mark(deep={"b": [{name: "old"}]}) == mark(deep={"b": [{name: "new"}]})


@pytest.mark.parametrize(
    "name", ["max_total_tokens", "tokenizer_path", "num_reserved_decode_tokens"]
)
def test_arguments_about_tokens_are_no_secrets(name: str) -> None:
    assert mark(**{name: 1}) != mark(**{name: 2})


def test_a_restart_of_the_captured_server_changes_nothing() -> None:
    now = captures.sglang(random_seed=5, launch_command="--api-key sk-1", port=7, status="x")
    was = captures.sglang()
    arguments = [sglang.ENGINE.arguments(given) for given in (was, now)]
    assert arguments[0]
    assert arguments[0] == arguments[1]
    other = sglang.ENGINE.arguments(captures.sglang(chunked_prefill_size=1))
    assert other != arguments[0]

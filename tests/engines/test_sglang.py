"""What SGLang says of itself, from captures of 0.5.23, and what it might say."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.deployment.facts import Role
from kvcanary.engines import openai, sglang

PAYLOADS = Path(__file__).parent / "payloads"


def payload(name: str) -> Any:
    return json.loads((PAYLOADS / f"0.5.23_{name}.json").read_text())


def test_the_captured_server_tells_its_capacity() -> None:
    worker = sglang.worker("http://w", payload("server_info"))
    assert worker is not None
    assert (worker.role, worker.engine, worker.version) == (Role.UNIFIED, "sglang", "0.5.23")
    assert (worker.pool_tokens, worker.context_tokens, worker.page_tokens) == (700, 2_048, 1)
    assert worker.limit_tokens == 693


def test_the_limit_is_the_longest_prompt_that_the_captured_server_took() -> None:
    took = {
        int(case["name"].removeprefix("comp_")): case["status"]
        for case in payload("probe_pool_mismatch")
        if case["name"].removeprefix("comp_").isdigit()
    }
    worker = sglang.worker("http://w", payload("server_info"))
    assert worker is not None
    assert worker.limit_tokens == max(length for length, status in took.items() if status == 200)
    assert took[worker.limit_tokens + 1] == 400


def test_nothing_else_of_it_is_kept() -> None:
    info = payload("server_info")
    info |= {"api_key": "sk-SECRET", "admin_api_key": "sk-SECRET", "version": "0.5 sk-SECRET"}
    worker = sglang.worker("http://w", info)
    assert worker is not None
    assert "SECRET" not in repr(worker)
    assert "/models/tiny" not in repr(worker)


@pytest.mark.parametrize(
    ("mode", "role"),
    [
        ("prefill", Role.PREFILL),
        ("decode", Role.DECODE),
        ("null", Role.UNIFIED),
        (None, Role.UNIFIED),
        (7, Role.UNIFIED),
    ],
)
def test_the_role_is_its_own_word_unless_the_router_said_it(mode: object, role: Role) -> None:
    info = payload("server_info") | {"disaggregation_mode": mode}
    worker = sglang.worker("u", info)
    assert worker is not None
    assert worker.role is role
    told = sglang.worker("u", info, Role.DECODE)
    assert told is not None
    assert told.role is Role.DECODE


def test_the_smallest_rank_counts() -> None:
    states = [{"memory_usage": {"token_capacity": n}} for n in (900, 650, 800)]
    worker = sglang.worker("u", {"max_total_num_tokens": 900, "internal_states": states})
    assert worker is not None
    assert worker.pool_tokens == 650
    assert worker.limit_tokens is None


def test_the_pool_follows_from_the_limit_where_the_pool_is_the_smaller() -> None:
    smaller = sglang.worker("u", {"max_req_input_len": 694, "context_length": 2_048})
    assert smaller is not None
    assert smaller.pool_tokens == 700
    larger = sglang.worker("u", {"max_req_input_len": 2_042, "context_length": 2_048})
    assert larger is not None
    assert larger.pool_tokens is None, "it holds the context, and how much more is unknown"


def test_use_of_one_rank_only() -> None:
    loads = payload("v1_loads")
    assert sglang.used_tokens(loads) == 0
    assert sglang.used_tokens({"loads": [{"num_used_tokens": 5}]}) == 5
    assert sglang.used_tokens({"loads": [{"num_used_tokens": 5}] * 2}) is None


def test_the_captured_list_of_models() -> None:
    assert openai.models(payload("v1_models")) == (openai.Model("tiny", 2_048, "tiny"),)


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "x" * 1_000_000, "a\x1b[31m", "a\nb", "a\u202eb", 5, None, ["x"]]
)
def test_names_that_are_none_are_not_models(name: object) -> None:
    assert openai.models({"data": [{"id": name}, {"id": "fine"}]}) == (openai.Model("fine", None),)


@pytest.mark.parametrize("length", [0, -1, True, 1.5, "9", None, 1 << 60])
def test_lengths_that_are_none_are_unknown(length: object) -> None:
    assert openai.models({"data": [{"id": "m", "max_model_len": length}]}) == (
        openai.Model("m", None),
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
KEYS = ("max_total_num_tokens", "max_req_input_len", "context_length", "page_size", "version",
        "disaggregation_mode", "internal_states", "loads", "data")  # fmt: skip


@given(values | st.dictionaries(st.sampled_from(KEYS), values))
@settings(deadline=None, derandomize=True, max_examples=500)
def test_any_document_is_understood_or_left(document: object) -> None:
    worker = sglang.worker("u", document)
    if worker is not None:
        for figure in (worker.pool_tokens, worker.limit_tokens, worker.context_tokens):
            assert figure is None or figure >= 0
    sglang.used_tokens(document)
    openai.models(document)

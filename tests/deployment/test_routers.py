"""What front doors say of the workers behind them, from captures of the real routers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.deployment import routers
from kvcanary.deployment.facts import Role
from kvcanary.deployment.routers import Listed, listing
from kvcanary.engines.documents import Documents
from tests.engines.captures import answer, captured_page, documents, page

PREFILL, DECODE = "http://127.0.0.1:18101", "http://127.0.0.1:18102"


def test_sglang_router_lists_its_workers() -> None:
    got = listing(
        documents(
            workers=answer("sglang-router-0.3.2-workers.json"),
            get_server_info=answer("sglang-router-0.3.2-get_server_info.json"),
        )
    )
    assert got.router == "sglang-router"
    assert got.workers == (Listed(PREFILL, Role.PREFILL), Listed(DECODE, Role.DECODE))
    assert got.notes == ()


def test_vllm_router_lists_its_workers() -> None:
    """Its ``/get_server_info`` is the prefill worker's own."""
    got = listing(
        documents(
            workers=answer("vllm-router-0.1.17-workers.json"),
            list_workers=answer("vllm-router-0.1.17-list_workers.json"),
            get_server_info=answer("vllm-router-0.1.17-get_server_info.json"),
        )
    )
    assert got.router == "vllm-router"
    assert set(got.workers) == {Listed(PREFILL, Role.PREFILL), Listed(DECODE, Role.DECODE)}


def test_a_list_of_addresses_has_no_roles() -> None:
    got = listing(documents(list_workers=answer("vllm-router-0.1.17-list_workers.json")))
    assert got.workers == (Listed(DECODE), Listed(PREFILL))


def test_the_router_shows_each_worker_s_metrics() -> None:
    shown = captured_page("sglang-router-0.3.2-engine_metrics.prom")
    pools = [
        routers.page_of(shown, url).total("sglang:max_total_num_tokens")
        for url in (PREFILL, DECODE)
    ]
    assert pools == [100_000, 20_000]
    assert routers.page_of(shown, "http://127.0.0.1:1").samples == ()


def test_each_address_once_in_a_role() -> None:
    """With ``--dp-aware`` every rank of a worker is listed."""
    named = [{"url": f"{DECODE}@{rank}", "worker_type": "decode"} for rank in range(4)]
    got = listing(documents(workers={"workers": named}))
    assert got.workers == (Listed(DECODE, Role.DECODE),)
    assert got.notes == ()


# Dynamo


def instance(component: str, endpoint: str = "generate") -> dict[str, object]:
    return {"component": component, "endpoint": endpoint, "instance_id": 7, "namespace": "dynamo"}


def test_dynamo_lists_instances_without_addresses() -> None:
    got = listing(documents(health=answer("dynamo-health.json")))
    assert got.router == "dynamo"
    assert got.workers == (Listed(None, Role.UNIFIED),)
    assert "DYN_SYSTEM_PORT" in got.notes[0]
    assert "only the first" in got.notes[0]


def test_dynamo_s_components_are_roles_where_prefill_is_apart() -> None:
    components = [instance("prefill"), instance("backend"), instance("backend")]
    got = listing(documents(health={"instances": [*components, instance("backend", "load")]}))
    assert [worker.role for worker in got.workers] == [Role.PREFILL, Role.DECODE, Role.DECODE]


def test_dynamo_s_own_figures_are_the_first_instance_s() -> None:
    text = (
        'dynamo_frontend_model_total_kv_blocks{model="m"} 1000\n'
        'dynamo_frontend_model_kv_cache_block_size{model="m"} 16\n'
        'dynamo_frontend_model_context_length{model="m"} 4096\n'
    )
    told = routers.first_instance(page(text))
    assert (told.pool_tokens, told.page_tokens, told.context_tokens) == (16_000, 16, 4_096)
    assert routers.first_instance(page("a 1\n")).pool_tokens is None


# any list at all

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("http://a:1"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["url", "worker_type", "component", "endpoint", "x"]), inner
        )
    ),
    max_leaves=10,
)
LISTS = st.dictionaries(st.sampled_from(["workers", "urls", "instances", "router_manager"]), VALUES)


@given(
    values=st.dictionaries(
        st.sampled_from(["/workers", "/list_workers", "/health", "/get_server_info"]),
        VALUES | LISTS,
    )
)
@settings(max_examples=150)
def test_any_list_is_understood_or_left(values: dict[str, object]) -> None:
    got = listing(Documents(values))
    assert len(got.workers) <= routers.MAX_WORKERS + 1
    assert all(worker.url is None or worker.url.startswith("http") for worker in got.workers)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@host:1",
        "http://host:hunter2@7",
        "http://host/?key=hunter2",
        "http://host/#hunter2",
        "ftp://host",
        "http://",
        "http://a b",
        "http://[::1",
        "http://" + "x" * 600,
    ],
)
def test_addresses_that_hold_secrets_or_none_are_not_asked(url: str) -> None:
    (worker,) = listing(
        documents(workers={"workers": [{"url": url, "worker_type": "decode"}]})
    ).workers
    assert worker.url is None

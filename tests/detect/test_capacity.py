"""Capacity: a minimum over all workers and ranks; limits that differ; each finding with its figures."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.deployment.facts import Facts, Rank, Role, Switch, SwitchName, Told
from kvcanary.detect import capacity, hardening
from kvcanary.verdict.claims import ClaimName, ExitCode, Status
from kvcanary.verdict.findings import FAILING, Finding, Severity
from kvcanary.verdict.judge import judge
from tests.builders import exchange, facts, healthy, sound, worker

CONTEXT = 65_536


def rules(deployment: Facts) -> list[str]:
    return [finding.rule for finding in capacity.findings(deployment)]


def only(deployment: Facts, rule: str) -> Finding:
    (found,) = (f for f in capacity.findings(deployment) if f.rule == rule)
    return found


def unified(pool: int | None = 100_000, **fields: Any) -> Facts:
    about = {k: fields.pop(k) for k in ("output_tokens", "context") if k in fields}
    return facts(worker(Role.UNIFIED, pool, **fields), **about)


# pools


def test_the_smallest_pool_counts_never_the_sum() -> None:
    deployment = facts(
        worker(Role.PREFILL, 50_000, url="http://p0"),
        worker(Role.PREFILL, 50_000, url="http://p1"),
        worker(Role.DECODE, 100_000),
    )
    assert deployment.prefill_pool_tokens == 50_000
    found = only(deployment, "capacity/pool-below-context")
    assert [line.split(":")[0] for line in found.evidence[:2]] == ["prefill worker http"] * 2
    assert found.severity is Severity.CAPACITY


def test_enough_for_the_context_is_no_finding() -> None:
    assert capacity.findings(sound()) == ()
    assert capacity.findings(sound(prefill=CONTEXT, decode=CONTEXT)) == ()
    assert capacity.assessed(sound())


@pytest.mark.parametrize("short", range(3))
def test_one_short_rank_is_a_short_worker(short: int) -> None:
    """Whichever it is: rank 0 is the only one that SGLang's own total speaks of."""
    ranks = tuple(Rank(rank=n, pool_tokens=40_000 if n == short else 100_000) for n in range(3))
    deployment = unified(40_000, limit=None, ranks=ranks)
    found = only(deployment, "capacity/pool-below-context")
    assert f"DP rank {short}: KV pool 40,000 tokens" in found.evidence[0]
    assert "25,536 short" in found.evidence[0]
    verdicts = [held.status for held in capacity.holdings(deployment)]
    assert verdicts == [Status.FAIL if n == short else Status.PASS for n in range(3)]


def test_a_worker_with_one_rank_is_not_told_apart_from_it() -> None:
    (held,) = capacity.holdings(unified(ranks=(Rank(rank=0, pool_tokens=100_000),)))
    assert held.rank is None


def test_a_rank_that_does_not_tell_makes_the_whole_unknown() -> None:
    ranks = (Rank(rank=0, pool_tokens=100_000), Rank(rank=1))
    deployment = unified(100_000, ranks=ranks)
    assert "1 of 2 pools are unknown" in str(capacity.missing(deployment))
    assert [held.status for held in capacity.holdings(deployment)] == [
        Status.PASS,
        Status.INCONCLUSIVE,
    ]


def test_a_limit_that_is_enforced_counts_more_than_what_ranks_tell() -> None:
    ranks = (Rank(rank=0, pool_tokens=100_000), Rank(rank=1, pool_tokens=100_000))
    assert "capacity/pool-below-context" in rules(unified(50_000, ranks=ranks))


def test_both_figures_have_their_source() -> None:
    told = (Told(figure="pool_tokens", by="A"), Told(figure="limit_tokens", by="B"))
    found = only(unified(50_000, told=told), "capacity/pool-below-context")
    assert "50,000 tokens (A), 15,536 short; accepts prompts up to 49,993 (B)" in found.evidence[0]
    assert found.evidence[-1] == "context limit 65,536 tokens (--context)"


@pytest.mark.parametrize(
    ("deployment", "why"),
    [
        (facts(), "no worker is known"),
        (facts(worker(Role.PREFILL)), "no decode worker is known"),
        (facts(worker(Role.DECODE)), "no prefill worker is known"),
        (facts(worker(Role.PREFILL), worker(Role.DECODE, None)), "1 of 2 pools are unknown"),
        (
            facts(worker(Role.PREFILL), worker(Role.DECODE), worker(Role.DECODE, None)),
            "1 of 3 pools are unknown",
        ),
        (facts(worker(Role.PREFILL), worker(Role.DECODE), context=None), "give it with --context"),
        (facts(worker(Role.UNIFIED, None)), "1 of 1 pools are unknown"),
    ],
)
def test_what_is_not_known_is_not_assessed(deployment: Facts, why: str) -> None:
    assert not capacity.assessed(deployment)
    assert why in str(capacity.missing(deployment)).replace("Give", "give")
    assert capacity.findings(deployment) == ()


def test_three_of_64_that_fail_leave_a_complete_table() -> None:
    workers = [worker(Role.DECODE, None if n in (5, 20, 63) else 100_000) for n in range(62)]
    deployment = facts(worker(Role.PREFILL), *workers, worker(Role.DECODE, None))
    assert "3 of 64 pools" in str(capacity.missing(deployment))
    statuses = [held.status for held in capacity.holdings(deployment)]
    assert (statuses.count(Status.PASS), statuses.count(Status.INCONCLUSIVE)) == (61, 3)


# output


def test_a_last_page_that_is_not_there() -> None:
    """1,000 tokens take 16 pages of 64; a pool of 1,020 hands out 15."""
    deployment = unified(1_020, context=1_000, limit=None)
    found = only(deployment, "capacity/no-room-for-output")
    assert (
        "takes 1,024 with its output, in whole pages of 64; the pool hands out 960"
        in (found.evidence[0])
    )
    assert capacity.findings(unified(1_024, context=1_000, limit=None)) == ()


def test_prompts_that_are_accepted_and_whose_output_is_clipped() -> None:
    deployment = unified(50_048, output_tokens=4_096)
    found = only(deployment, "capacity/no-room-for-output")
    assert "a prompt of 50,041 tokens is accepted and takes 54,144" in found.evidence[0]
    assert "Promise 50,048 tokens and prompts of at most 45,952" in found.remedy
    assert capacity.findings(unified(65_536, output_tokens=4_096)) == ()
    assert rules(unified(50_048)) == ["capacity/pool-below-context"], "no output is promised"
    split = sound(prefill=50_048, decode=50_048, output_tokens=4_096)
    assert only(split, "capacity/no-room-for-output").workers == ("http://decode:30000",)


@given(
    pool=st.integers(1, 3_000),
    context=st.integers(1, 3_000),
    page=st.sampled_from([1, 16, 64]),
    output=st.none() | st.integers(1, 3_000),
)
def test_no_finding_means_that_a_promised_request_fits_in_whole_pages(
    pool: int, context: int, page: int, output: int | None
) -> None:
    deployment = unified(pool, context=context, page_tokens=page, output_tokens=output, limit=None)
    fits = -(-context // page) <= pool // page
    assert (capacity.findings(deployment) == ()) is fits


# slots


def test_slots_that_may_promise_the_pool_several_times_are_a_doubt() -> None:
    """llama.cpp does not say whether its slots share the pool or divide it."""
    deployment = unified(65_536, slots=4, engine="llama.cpp", limit=65_535)
    found = only(deployment, "capacity/shared-slots")
    assert found.severity is Severity.DEGRADED
    assert (
        "4 slots, each of which may take 65,536 tokens, beside a pool of 65,536"
        in (found.evidence[0])
    )
    assert "-np 1" in found.remedy
    assert "-c 262144" in found.remedy
    assert "promise 16,384 tokens" in found.remedy
    assert [h.status for h in capacity.holdings(deployment)] == [Status.INCONCLUSIVE]
    verdict = judge(healthy(facts=deployment), (ClaimName.CAPACITY,)).verdict
    assert verdict.exit_code is ExitCode.INCONCLUSIVE
    assert rules(unified(262_144, slots=4, limit=65_535)) == []
    assert rules(unified(65_536, slots=1, limit=65_535)) == []


# limits


def test_workers_of_different_context() -> None:
    skewed = facts(worker(Role.PREFILL, context=65_536), worker(Role.DECODE, context=70_000))
    assert rules(skewed) == ["capacity/contexts-differ", "capacity/danger-window"]


def test_a_promise_above_what_workers_enforce() -> None:
    promised = facts(worker(Role.PREFILL), worker(Role.DECODE), context=90_000)
    (found,) = capacity.findings(promised)
    assert found.rule == "capacity/context-below-promise"
    assert found.severity is Severity.CAPACITY
    assert "65,536 tokens, less than the 90,000" in found.title
    assert "--context-length 90000" in found.remedy


def test_workers_that_take_more_than_the_front_door_says_are_a_warning() -> None:
    above: dict[str, Any] = {"context": 40_000, "context_source": "/v1/models max_model_len"}
    found = only(
        facts(worker(Role.PREFILL), worker(Role.DECODE), **above), "capacity/context-above-promise"
    )
    assert found.severity is Severity.DEGRADED
    assert rules(facts(worker(Role.PREFILL), worker(Role.DECODE), context=40_000)) == []


@pytest.mark.parametrize(
    ("refuser", "taker"), [(Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)]
)
def test_a_window_needs_no_short_pool_and_has_two_directions(refuser: Role, taker: Role) -> None:
    deployment = facts(worker(refuser, limit=60_000), worker(taker))
    found = only(deployment, "capacity/danger-window")
    assert f"60,001 to 65,529 tokens are refused by {refuser} and taken by {taker}" in found.title
    assert "--context-length 59968" in found.remedy, "whole pages"
    assert "refuse prompts of more than 59,961 tokens at the front door" in found.remedy


def test_what_both_roles_are_to_be_given_is_the_context_of_the_smaller() -> None:
    """vLLM: the longest prompt is ``max_model_len`` less one."""
    short = worker(Role.PREFILL, context=40_000, limit=39_999, engine="vllm")
    deployment = facts(short, worker(Role.DECODE, limit=65_535, engine="vllm"))
    found = only(deployment, "capacity/danger-window")
    assert "--max-model-len 40000 on every worker" in found.remedy


def test_a_window_is_seen_beside_workers_that_tell_nothing() -> None:
    deployment = facts(
        worker(Role.PREFILL, limit=None), worker(Role.PREFILL, 50_000), worker(Role.DECODE)
    )
    assert "capacity/danger-window" in rules(deployment)
    assert deployment.danger_window
    assert deployment.danger_window.first_tokens == 49_994


def test_one_short_replica_makes_a_window_beside_one_that_is_not() -> None:
    deployment = facts(
        worker(Role.PREFILL), worker(Role.PREFILL, limit=60_000), worker(Role.DECODE)
    )
    assert "60,001 to 65,529" in only(deployment, "capacity/danger-window").title
    assert deployment.danger_window
    assert deployment.danger_window.first_tokens == 60_001


def test_a_window_beyond_the_promise_is_a_warning() -> None:
    deployment = sound(prefill=50_000, context=40_000)
    found = only(deployment, "capacity/window-beyond-promise")
    assert found.severity is Severity.DEGRADED
    assert rules(deployment) == ["capacity/window-beyond-promise"]
    assert deployment.danger_window is None


def test_replicas_that_accept_different_lengths() -> None:
    replicas = [worker(Role.UNIFIED, limit=limit) for limit in (65_529, 60_000)]
    found = only(facts(*replicas, context=60_000), "capacity/limits-differ")
    assert "60,001 to 65,529 tokens is served depends on its route" in found.title
    short = facts(worker(Role.UNIFIED), worker(Role.UNIFIED, 50_000, url="http://short"))
    assert rules(short) == ["capacity/pool-below-context"], "the pool explains the limit"


def test_a_prompt_limit_of_its_own() -> None:
    """TensorRT-LLM without chunked prefill: ``max_num_tokens``."""
    found = only(unified(limit=8_192), "capacity/limit-below-promise")
    assert "accept prompts up to 8,192 tokens only, and 65,528 are promised" in found.title
    assert rules(unified(limit=None)) == []
    assert rules(unified(limit=61_440, output_tokens=4_096)) == []
    assert rules(unified(None, limit=8_192)) == ["capacity/limit-below-promise"]


def switched(name: SwitchName, on: bool | None, flag: str = "--flag") -> dict[str, Any]:
    return {"switches": (Switch(name=name, on=on, flag=flag),)}


def test_truncation_fails_within_the_promise_and_warns_beyond_it() -> None:
    cutting = switched(SwitchName.NO_AUTO_TRUNCATE, on=False)
    within = only(unified(50_000, **cutting), "capacity/silent-truncation")
    beyond = only(unified(**cutting), "capacity/silent-truncation")
    assert (within.severity, beyond.severity) == (Severity.CAPACITY, Severity.DEGRADED)
    assert "from 49,993 tokens on: within the promise" in within.title
    for on in (True, None):
        assert rules(unified(**switched(SwitchName.NO_AUTO_TRUNCATE, on))) == []


@pytest.mark.parametrize(
    ("deployment", "note"),
    [
        (unified(50_000), "15,536 short"),
        (facts(worker(Role.UNIFIED, context=40_000)), "context 40,000"),
        (unified(CONTEXT + 63, limit=CONTEXT - 1, page_tokens=1_000), "no room for the last page"),
        (unified(70_000, page_tokens=7_000, output_tokens=64), "holds"),
        (unified(69_999, page_tokens=7_000, output_tokens=64), "no room for output"),
        (unified(limit=8_192), "accepts 8,192"),
        (unified(None), "pool unknown"),
        (unified(None, limit=8_192), "pool unknown"),
        (unified(), "holds"),
    ],
)
def test_the_row_of_a_worker_says_what_its_finding_does(deployment: Facts, note: str) -> None:
    """A table in which all hold, above a finding that one does not, is understood wrong."""
    (row,) = capacity.holdings(deployment)
    assert row.note == note
    failing = {f.rule for f in capacity.findings(deployment) if f.severity in FAILING}
    if note != "pool unknown":
        assert (row.status is Status.FAIL) is bool(failing), failing


# remedies


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("sglang", ["--context-length 49984", "--mem-fraction-static 0.851 instead of 0.800"]),
        (
            "vllm",
            ["--max-model-len 49984", "--gpu-memory-utilization 0.851", "--kv-cache-memory-bytes"],
        ),
        ("llama.cpp", ["-c 49984"]),
        ("something", ["context limit 49984"]),
    ],
)
def test_the_remedy_names_the_figure_to_set(engine: str, flags: list[str]) -> None:
    """15,552 tokens of 65,536 bytes are 0.949 GiB: 0.051 of a GPU with 18.75 GiB, rounded up."""
    from kvcanary.deployment.facts import Gpu

    gpu = Gpu(host="h", index=0, total_bytes=20 * 10**9, source="NVML")
    deployment = unified(
        50_000, engine=engine, bytes_per_token=65_536.0, memory_fraction=0.8
    ).model_copy(update={"gpus": (gpu,)})
    found = only(deployment, "capacity/pool-below-context")
    for flag in flags:
        assert flag in found.remedy
    assert "0.95 GiB more on each GPU" in found.remedy


def test_a_step_that_leaves_nothing_is_no_remedy_and_unknown_bytes_are_not_made_up() -> None:
    full = unified(50_000, bytes_per_token=65_536.0, memory_fraction=0.95)
    from kvcanary.deployment.facts import Gpu

    gpu = Gpu(host="h", index=0, total_bytes=20 * 10**9, source="NVML")
    found = only(full.model_copy(update={"gpus": (gpu,)}), "capacity/pool-below-context")
    assert "use more GPUs" in found.remedy
    assert "is not known" in only(unified(50_000), "capacity/pool-below-context").remedy


def set_up(
    pools: tuple[int, int], context: int, promised: int, page: int, output: int | None, engine: str
) -> Facts:
    """Prefill and decode with one context limit, which enforce what their engine does."""

    def limit(pool: int) -> int:
        return context - 1 if engine == "vllm" else max(1, min(pool, context) - 7)

    roles = (Role.PREFILL, Role.DECODE)
    return facts(
        *(
            worker(r, p, engine=engine, context=context, limit=limit(p), page_tokens=page)
            for r, p in zip(roles, pools, strict=True)
        ),
        context=promised,
        output_tokens=output,
    )


def figure(remedy: str, before: str) -> int:
    """The number that stands behind these words."""
    found = re.search(rf"{before} ([\d,]+)", remedy)
    assert found, remedy
    return int(found[1].replace(",", ""))


CONTEXT_FLAGS = {"sglang": "--context-length", "vllm": "--max-model-len"}
POOLS = st.integers(2_000, 200_000)


@given(
    st.tuples(POOLS, POOLS),
    st.integers(2_000, 200_000),
    st.sampled_from([1, 16, 64, 100, 256]),
    st.none() | st.integers(1, 500),
    st.sampled_from(list(CONTEXT_FLAGS)),
)
def test_who_does_what_a_remedy_says_passes(
    pools: tuple[int, int], context: int, page: int, output: int | None, engine: str
) -> None:
    """For each way that a finding names: the workers started again so, it is gone and nothing else comes."""

    def failing(pools: tuple[int, int], context: int) -> list[str]:
        again = set_up(pools, context, context, page, output, engine)
        return [f.rule for f in capacity.findings(again) if f.severity in FAILING]

    first = set_up(pools, context, context, page, output, engine)
    found = {f.rule: f.remedy for f in capacity.findings(first) if f.severity in FAILING}
    for rule in ("capacity/pool-below-context", "capacity/danger-window"):
        if rule in found:
            fits = figure(found[rule], CONTEXT_FLAGS[engine])
            assert failing(pools, fits) == [], (rule, fits)
    if "capacity/pool-below-context" in found:
        more = figure(found["capacity/pool-below-context"], "missing")
        grown = tuple(pool + more if pool < context else pool for pool in pools)
        assert "capacity/pool-below-context" not in failing((grown[0], grown[1]), context)
        room = "capacity/no-room-for-output"
        assert room in found or room not in failing((grown[0], grown[1]), context)
    elif "capacity/no-room-for-output" in found:
        assert failing(pools, figure(found["capacity/no-room-for-output"], "Promise")) == []


def test_replicas_that_are_started_as_the_remedy_says_accept_the_same() -> None:
    replicas = [worker(Role.UNIFIED, limit=limit) for limit in (65_529, 60_000)]
    found = only(facts(*replicas, context=60_000), "capacity/limits-differ")
    context = figure(found.remedy, "--context-length")
    assert context == 60_007
    alike = facts(*(worker(Role.UNIFIED, context=context) for _ in replicas), context=60_000)
    assert rules(alike) == []


@pytest.mark.parametrize("page", [1, 64, 100])
def test_the_memory_for_vllms_pool_counts_its_null_block_and_whole_blocks(page: int) -> None:
    deployment = unified(50_000, engine="vllm", bytes_per_token=1_024.0, page_tokens=page)
    found = only(deployment, "capacity/pool-below-context")
    tokens = figure(found.remedy, "--kv-cache-memory-bytes") // 1_024
    usable = tokens // page * page - page
    assert CONTEXT <= usable < CONTEXT + page


def test_a_pool_without_a_page_is_no_promise() -> None:
    found = only(unified(50, page_tokens=64), "capacity/pool-below-context")
    assert "promise" not in found.remedy.lower()
    assert "missing 65,536 tokens" in found.remedy


# refusals within the promise, and advice


def test_refusals_that_the_promise_has_room_for() -> None:
    sent = [
        exchange(1, outcome="refused", tokens=60_000),
        exchange(2, outcome="refused", tokens=70_000),
    ]
    (found,) = capacity.refused_within_promise(sent, sound())
    assert found.exchanges == (1,)
    assert capacity.refused_within_promise(sent, None) == ()


def test_advice_is_never_a_finding_and_what_is_off_comes_first() -> None:
    unseen = (
        *switched(SwitchName.DEFERRED_RELEASE, None)["switches"],
        *switched(SwitchName.CACHE_SALT, None, flag="")["switches"],  # and no way to see or set it
    )
    off = switched(SwitchName.KV_CHECKSUM, on=False)["switches"]
    on = switched(SwitchName.POOL_CHECK, on=True)["switches"]
    deployment = facts(
        worker(Role.PREFILL, switches=(*unseen, *off, *on)), worker(Role.DECODE, switches=off)
    )
    assert capacity.findings(deployment) == ()
    assert [(a.switch, a.on, a.workers) for a in hardening.advice(deployment)] == [
        ("kv-checksum", False, ("P1", "D1")),
        ("deferred-release", None, ("P1",)),
    ]
    assert all(a.why for a in hardening.advice(deployment))
    assert hardening.advice(facts(worker(Role.UNIFIED, switches=off))) == (), "nothing is sent"


@given(st.lists(st.tuples(st.sampled_from(Role), st.none() | st.integers(0, 200_000)), max_size=6))
def test_whatever_is_known_nothing_unknown_passes(shape: list[tuple[Role, int | None]]) -> None:
    deployment = facts(*(worker(role, pool) for role, pool in shape))
    failing = [f for f in capacity.findings(deployment) if f.severity in FAILING]
    statuses = {held.status for held in capacity.holdings(deployment)}
    if capacity.assessed(deployment) and not failing:
        assert statuses == {Status.PASS}
    assert len(capacity.holdings(deployment)) == len(shape)

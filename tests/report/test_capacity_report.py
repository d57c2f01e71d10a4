"""The report of capacity: a row and a bar for each pool, at any width, whatever servers say."""

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kvcanary.deployment.facts import Facts, Gpu, Rank, Role, Switch, SwitchName, Untold, Worker
from kvcanary.record.run import CAPACITY_SUITE, RunRecord
from kvcanary.report.capacity import BAR, MAX_BARS, print_capacity
from kvcanary.report.summary import print_summary
from kvcanary.verdict.claims import ClaimName
from kvcanary.verdict.judge import judge
from tests.builders import facts, info, sound, worker
from tests.report.test_summary import HOSTILE


def judged(deployment: Facts | None) -> RunRecord:
    about = info(suite=CAPACITY_SUITE)
    run = RunRecord(info=about, facts=deployment)
    found = judge(run, (ClaimName.CAPACITY,))
    return run.model_copy(update={"findings": found.findings, "verdict": found.verdict})


def shown(deployment: Facts | None, width: int = 80, **console: Any) -> str:
    out = io.StringIO()
    target = Console(file=out, width=width, force_terminal=False, **console)
    print_capacity(target, judged(deployment), "/tmp/run.jsonl")
    return out.getvalue()


def bars(text: str) -> dict[str, str]:
    return dict(re.findall(rf"^  (\S+) +([█░?]{{{BAR}}})", text, re.MULTILINE))


def test_a_bar_is_full_when_a_full_length_request_fits_and_not_a_token_before() -> None:
    drawn = bars(shown(sound(prefill=65_535, decode=65_536)))
    assert drawn == {"P1": "█" * (BAR - 1) + "░", "D1": "█" * BAR}
    assert "99%" in shown(sound(prefill=65_535))
    unknown = shown(facts(worker(Role.UNIFIED, None)))
    assert bars(unknown) == {"W1": "?" * BAR}
    assert "pool unknown" in unknown


def test_many_pools_have_a_row_each_and_the_emptiest_have_bars() -> None:
    pools = [worker(Role.DECODE, 70_000 + n, url=f"http://d{n}") for n in range(30)]
    pools[17] = worker(Role.DECODE, None, url="http://d17")
    pools[23] = worker(Role.DECODE, 10_000, url="http://d23")
    text = shown(facts(worker(Role.PREFILL), *pools))
    drawn = bars(text)
    assert len(drawn) == MAX_BARS
    assert list(drawn)[:2] == ["D18", "D24"], "unknown first, then the smallest"
    assert f"and {31 - MAX_BARS} more that hold as much or more" in text
    assert len(re.findall(r"(holds|fails|unknown) *$", text, re.MULTILINE)) == 31


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_width_cuts_a_figure(width: int) -> None:
    ranks = tuple(Rank(rank=n, pool_tokens=12_345_678 + n, used_tokens=1_000_000) for n in range(2))
    deployment = facts(
        worker(Role.PREFILL, 1_234_567), worker(Role.DECODE, 12_345_678, ranks=ranks)
    )
    text = shown(deployment, width)
    for figure in ("1,234,567", "12,345,678", "12,345,679", "65,529", "8%"):
        assert figure in text
    assert "…" not in text
    if width == 80:
        table = text.split("Pool against")[0]
        assert all(len(line.rstrip()) <= 80 for line in table.splitlines()[4:])


@pytest.mark.parametrize(
    "text", HOSTILE, ids=["escapes", "markup", "override", "controls", "1 MB", "nul"]
)
def test_hostile_names_are_shown_as_plain_text(text: str) -> None:
    odd = worker(
        Role.UNIFIED,
        50_000,
        url=f"http://w/{text}",
        source=text,
        version=text,
        untold=(Untold(figure=text, remedy=text),),
        switches=(Switch(name=SwitchName.KV_CHECKSUM, on=False, flag=text),),
    )
    gpu = Gpu(host=text, index=0, name=text, source=text)
    said = shown(facts(odd, notes=(text,), gpus=(gpu,), context_source=text))
    for forbidden in "\x1b\x07\x9b\u202e\u202c\u2066\u2069\u200f\r\t\x0b\x0c\x85\u2028\x00":
        assert forbidden not in said
    assert " FAIL " in said
    assert len(said) < 60_000


def test_what_is_unknown_is_said_once_for_all_alike_with_the_way_to_know_it() -> None:
    untold = (Untold(figure="pool_tokens", remedy="set --enable-metrics"),)
    deployment = facts(
        *(worker(Role.DECODE, None, untold=untold) for _ in range(3)), worker(Role.PREFILL)
    )
    assert "  pool of D1, D2, D3: set --enable-metrics\n" in shown(deployment)


def test_advice_is_whole_here_and_one_line_in_the_summary() -> None:
    switches = (
        Switch(name=SwitchName.KV_CHECKSUM, on=False, flag="--checksum"),
        Switch(name=SwitchName.CACHE_SALT, on=None, flag="--salt"),
        Switch(name=SwitchName.POOL_CHECK, on=False, flag=""),
    )
    deployment = facts(worker(Role.PREFILL, switches=switches), worker(Role.DECODE))
    text = shown(deployment)
    assert "kv-checksum off on P1: --checksum" in text
    assert "cache-salt cannot be seen on P1: --salt" in text
    assert "pool-check off on P1 (this engine has no such switch)" in text
    assert "PASS" in text
    out = io.StringIO()
    print_summary(Console(file=out, width=200), judged(deployment), None)
    assert "advice: safety switches are off: kv-checksum (--checksum)\n" in out.getvalue()


def test_gpus_have_a_table_of_their_own() -> None:
    gib = 1 << 30
    gpus = (
        Gpu(
            host="h1",
            index=0,
            name="H200",
            total_bytes=141 * gib,
            used_bytes=94 * gib,
            source="NVML",
        ),
        Gpu(host="h1", index=1, source="NVML"),
    )
    text = shown(sound().model_copy(update={"gpus": gpus}))
    assert re.search(r"h1 +0 +H200 +141\.0 +67% +NVML", text)
    assert re.search(r"h1 +1 +- +unknown +- +NVML", text)
    assert "GPUs" not in shown(sound())


SIZES = st.none() | st.sampled_from([0, 1, 63, 64, 65, 65_536, 1 << 52])
ODD_WORKERS = st.builds(
    worker,
    st.sampled_from(Role),
    SIZES,
    context=SIZES,
    limit=SIZES,
    page_tokens=SIZES,
    used_tokens=SIZES,
    slots=SIZES,
    engine=st.sampled_from(["sglang", "vllm", "llama.cpp", "unknown"]),
    version=st.sampled_from([None, "0.5.15", "0.5.20.dev1", "b1", "x"]),
    bytes_per_token=st.none() | st.sampled_from([0.0, 0.5, 1e12]),
    memory_fraction=st.none() | st.sampled_from([0.0, 0.8, 1.0]),
    ranks=st.lists(st.builds(Rank, rank=st.integers(0, 3), pool_tokens=SIZES), max_size=2),
)
ODD_GPUS = st.builds(
    Gpu, host=st.just("h"), index=st.integers(0, 3), total_bytes=SIZES, source=st.just("x")
)


@settings(max_examples=60)
@given(st.lists(ODD_WORKERS, max_size=4), st.lists(ODD_GPUS, max_size=2).map(tuple), SIZES, SIZES)
def test_no_figures_however_odd_break_the_rules_or_the_report(
    workers: list[Worker], gpus: tuple[Gpu, ...], context: int | None, output: int | None
) -> None:
    deployment = facts(*workers, context=context, output_tokens=output, gpus=gpus)
    said = shown(deployment)
    assert re.search("PASS|FAIL|INCONCLUSIVE", said)
    if any(w.pool_tokens is None for w in workers if not w.ranks):
        assert "PASS" not in said


def test_a_run_without_facts_or_verdict_is_said_to_have_none() -> None:
    assert "the deployment was not asked" in shown(None)
    out = io.StringIO()
    stopped = RunRecord(info=info(suite=CAPACITY_SUITE), stopped="interrupted")
    print_capacity(Console(file=out, width=80), stopped, None)
    assert "Nothing was judged: interrupted" in out.getvalue()
    assert "PASS" not in out.getvalue()

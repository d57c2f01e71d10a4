"""``kvcanary capacity`` and ``advisories`` as a person runs them: no prompt is sent, nothing unknown passes."""

import asyncio
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kvcanary.deployment.facts import Facts
from kvcanary.record.journal import load
from kvcanary.record.run import RunRecord
from tests.cli.command import (
    COMMAND,
    GUARD_SECONDS,
    Ended,
    environment,
    front_door,
    kvcanary,
    records,
)
from tests.deployment.test_many_workers import respond, role
from tests.engines.captures import answer
from tests.probing.rogue_server import Call, Handler, rogue_server, run

SICK = "lab:glm-5.3?context=65536"
HEALTHY = "lab:healthy?context=65536"


def assessed(folder: Path, *arguments: str, **extra: str) -> tuple[Ended, RunRecord]:
    path = folder / "capacity.jsonl"
    ended = kvcanary(folder, "capacity", *arguments, "--record", str(path), extra=extra)
    return ended, load(path)


def behind(handlers: Sequence[Handler], folder: Path, *arguments: str) -> tuple[Ended, list[Call]]:
    """The command against a router that lists a worker for each handler, and every call that was made."""

    async def exchange() -> tuple[Ended, list[Call]]:
        async with AsyncExitStack() as stack:
            served = [await stack.enter_async_context(rogue_server(h)) for h in handlers]
            entries = [
                {"url": s.base_url.removesuffix("/v1"), "worker_type": role(n).value}
                for n, s in enumerate(served)
            ]

            async def router(call: Call) -> None:
                paths = {"/workers": {"workers": entries}, "/v1/models": models(2_048)}
                listed = paths.get(call.path)
                await call.answer(200 if listed else 404, json.dumps(listed).encode())

            front = await stack.enter_async_context(rogue_server(router))
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                "capacity",
                front.base_url,
                *arguments,
                env=environment(folder),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(process.communicate(), GUARD_SECONDS)
            assert process.returncode is not None
            calls = [call for server in (front, *served) for call in server.calls]
            return Ended(process.returncode, out.decode(), err.decode()), calls

    return run(exchange())


def models(context: int) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": context}]}


def engine(**differs: object) -> Handler:
    """A worker with captured documents of SGLang, less what differs."""
    info = {**answer("sglang-0.5.23-server_info.json"), **differs}

    async def handler(call: Call) -> None:
        documents = {"/server_info": info, "/v1/models": models(2_048)}
        found = documents.get(call.path)
        await call.answer(200 if found else 404, json.dumps(found).encode())

    return handler


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, RunRecord]:
    folder = tmp_path_factory.mktemp("sick")
    return folder, *assessed(folder, SICK)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, RunRecord]:
    folder = tmp_path_factory.mktemp("healthy")
    return folder, *assessed(folder, HEALTHY)


# what is found


def test_the_incident_is_seen_before_any_traffic(sick: tuple[Path, Ended, RunRecord]) -> None:
    _, ended, record = sick
    assert ended.code == 1
    assert [f.rule for f in record.findings] == [
        "capacity/pool-below-context",
        "capacity/danger-window",
    ]
    assert record.exchanges == ()
    assert record.info.suite == "capacity"
    assert "P1 prefill - 42,560 42,553 64" in ended.said
    assert "22,976 short" in ended.said
    assert "--context-length 42560" in ended.said
    assert "42,554 to 65,529 tokens are refused by prefill and taken by decode" in ended.said


def test_healthy_passes(healthy: tuple[Path, Ended, RunRecord]) -> None:
    _, ended, record = healthy
    assert ended.code == 0
    assert record.findings == ()
    assert "PASS" in ended.out
    assert "every worker's pool (127,744 tokens or more) holds the context limit" in ended.said


def test_a_front_door_alone_is_inconclusive_and_says_what_to_give_it(tmp_path: Path) -> None:
    ended, _ = assessed(tmp_path, f"{HEALTHY}&front_door_only")
    assert ended.code == 3
    assert "INCONCLUSIVE" in ended.out
    assert "list the workers in a deployment file" in ended.said


def test_each_rank_has_its_row(tmp_path: Path) -> None:
    ended, record = assessed(tmp_path, "lab:dp4?context=65536")
    assert ended.code == 0
    assert record.verdict
    assert [(h.worker, h.rank) for h in record.verdict.holdings] == [
        ("P1", None),
        *(("D1", n) for n in range(4)),
    ]
    assert "D1.3" in ended.out


def test_nothing_but_metadata_is_asked_for(tmp_path: Path) -> None:
    ended, calls = behind([engine(), engine()], tmp_path)
    assert ended.code == 1, "the captured pool is smaller than its context"
    assert len(calls) > 4
    assert {call.method for call in calls} == {"GET"}
    assert not any(call.body for call in calls)


def test_of_64_workers_three_are_ill(tmp_path: Path) -> None:
    """A whole table for the others, and no verdict on the whole."""

    def ill_or_well(number: int) -> Handler:
        async def handler(call: Call) -> None:
            await respond(number, call)

        return handler

    handlers = [ill_or_well(number) for number in range(64)]
    ended, _ = behind(handlers, tmp_path, "--context", "700", "--deadline", "2")
    assert ended.code == 3
    assert "3 of 64 pools are unknown" in ended.said
    rows = [line for line in ended.out.splitlines() if line.endswith(("holds", "unknown  "))]
    words = [
        line.split()[-1]
        for line in ended.out.splitlines()
        if line.startswith("  ") and line.split()
    ]
    assert words.count("holds") == 61, rows
    assert ended.out.count("pool unknown") == 3
    assert "and 48 more that hold as much or more" in ended.out


def test_an_old_engine_with_a_known_fault(tmp_path: Path) -> None:
    old = engine(version="0.5.15")
    ended, _ = behind(
        [
            old,
            engine(
                version="0.5.15",
                max_total_num_tokens=4_096,
                max_req_input_len=2_042,
                internal_states=[],
            ),
        ],
        tmp_path,
    )
    assert ended.code == 1
    assert "advisory/known-fault" in ended.said
    assert "sglang-refusal-not-terminal" in ended.said


# forms


def test_json_is_the_record_and_nothing_else(tmp_path: Path) -> None:
    ended, record = assessed(tmp_path, SICK, "-o", "json")
    assert ended.code == 1
    assert RunRecord.model_validate_json(ended.out) == record
    assert ended.err == ""


def test_a_record_is_shown_again_and_made_into_junit(sick: tuple[Path, Ended, RunRecord]) -> None:
    folder, ended, _ = sick
    junit = folder / "capacity.xml"
    again = kvcanary(folder, "report", str(folder / "capacity.jsonl"), "--report", f"junit={junit}")
    assert (again.code, again.out) == (1, ended.out)
    cases = {case.get("name"): case for case in ET.parse(junit).iter("testcase")}
    assert cases["capacity"].find("failure") is not None
    assert cases["isolation"].find("skipped") is not None


@pytest.mark.parametrize(
    ("variables", "bar"), [({"NO_COLOR": "1"}, "█"), ({"PYTHONIOENCODING": "ascii"}, "#")]
)
def test_a_pipe_of_80_columns(
    sick: tuple[Path, Ended, RunRecord], variables: dict[str, str], bar: str
) -> None:
    folder, _, _ = sick
    shown = kvcanary(
        folder, "report", str(folder / "capacity.jsonl"), extra={"COLUMNS": "80", **variables}
    )
    assert "\x1b" not in shown.out
    assert "\\u" not in shown.out
    assert f"P1      {bar * 15}" in shown.out
    assert "127,744" in shown.out


# baselines


def test_a_pool_that_shrank_since_the_baseline(
    healthy: tuple[Path, Ended, RunRecord], tmp_path: Path
) -> None:
    earlier = str(healthy[0] / "capacity.jsonl")
    ended, _ = assessed(tmp_path, HEALTHY, "--baseline", earlier)
    assert ended.code == 0
    assert "drift" not in ended.out
    _, record = assessed(tmp_path, SICK, "--baseline", earlier)
    assert "drift/pool-shrank" in {f.rule for f in record.findings}
    assert record.baseline
    assert record.baseline.run == healthy[2].info.run


def test_check_takes_a_baseline_too(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.jsonl"
    kvcanary(tmp_path, "capacity", "lab:healthy?context=16384", "--record", str(earlier))
    lines = [json.loads(line) for line in earlier.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "facts":
            facts = Facts.model_validate(line["value"])
            grown = [
                w.model_copy(update={"pool_tokens": 50_000, "ranks": ()}) for w in facts.workers
            ]
            line["value"] = facts.model_copy(update={"workers": tuple(grown)}).model_dump(
                mode="json"
            )
    earlier.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = kvcanary(
        tmp_path,
        "check",
        "lab:healthy?context=16384",
        "--suite",
        "smoke",
        "--baseline",
        str(earlier),
    )
    assert ended.code == 1
    assert "drift/pool-shrank" in ended.said


@pytest.mark.parametrize("text", ["", "no record\n", '{"kind": "info", "value": {}}\n'])
def test_a_baseline_that_is_no_record(tmp_path: Path, text: str) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(text)
    ended = kvcanary(tmp_path, "capacity", HEALTHY, "--baseline", str(wrong))
    assert ended.code == 2
    assert "is not a run record" in ended.said or "not a line of a run record" in ended.said


# waivers, and what cannot be run


def test_a_waiver_is_taken_and_said(tmp_path: Path) -> None:
    waivers = tmp_path / "waivers.yaml"
    lines = [
        f"  - {{rule: {rule}, reason: known, until: 2999-01-01}}"
        for rule in ("capacity/pool-below-context", "capacity/danger-window")
    ]
    waivers.write_text("\n".join(["waivers:", *lines]))
    ended, _ = assessed(tmp_path, SICK, "--waivers", str(waivers))
    assert ended.code == 0
    assert "the smallest pool holds 42,560 of 65,536 tokens, which is waived" in ended.said


def test_nobody_there_is_no_verdict(tmp_path: Path, unused_port: int) -> None:
    ended = kvcanary(tmp_path, "capacity", f"http://127.0.0.1:{unused_port}/v1")
    assert ended.code == 2
    assert "the connection was refused" in ended.said
    assert len(records(tmp_path)) <= 1


def test_several_models_keep_nobody_from_asking(tmp_path: Path) -> None:
    async def no_prompts(call: Call) -> None:
        raise AssertionError(f"{call.method} {call.path}")

    async def two(call: Call) -> None:
        listing = {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}
        if call.path == "/v1/models":
            await call.answer(200, json.dumps(listing).encode())
        else:
            await front_door(no_prompts)(call)

    async def exchange() -> Ended:
        async with rogue_server(two) as server:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                "capacity",
                server.base_url,
                env=environment(tmp_path),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(process.communicate(), GUARD_SECONDS)
            return Ended(process.returncode or 0, out.decode(), err.decode())

    ended = run(exchange())
    assert ended.code == 3
    assert "the promised context limit is unknown. Give it with --context" in ended.said
    assert "serves ?" not in ended.said


# advisories


def test_advisories_are_listed(tmp_path: Path) -> None:
    everything = kvcanary(tmp_path, "advisories")
    some = kvcanary(tmp_path, "advisories", "--engine", "sglang")
    assert everything.code == some.code == 0
    assert "sglang-refusal-not-terminal" in some.out
    assert "affects sglang 0.5.11 to before 0.5.20; fixed in 0.5.20" in some.said
    assert "vllm" not in some.out
    assert "CVE-2025-25183" in everything.out
    wrong = kvcanary(tmp_path, "advisories", "--engine", "sgland")
    assert wrong.code == 2
    assert "There are some for sglang, vllm" in wrong.said

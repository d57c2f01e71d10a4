"""Real routers in front of the lab's workers: what they pass on, and what that makes of a run.

sglang-router and vllm-router from PyPI, as processes of their own, in prefill/decode mode.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from kvcanary.record.journal import load
from kvcanary.record.run import RunRecord
from tests.cli.command import COMMAND, Ended, environment, kvcanary
from tests.needs import missing

CONTEXT = 4_096
MODEL = "glm-5.3-lab"
START_SECONDS = 60.0
"""Longest wait for a router. It takes about three."""


@dataclass(frozen=True)
class Router:
    """How one of them is started: the module, its mode, and what stands behind a prefill URL."""

    module: str
    dialect: str
    mode: str
    after_prefill: tuple[str, ...] = ()


SGLANG = Router(
    "sglang_router.launch_router", "sglang", "--pd-disaggregation", after_prefill=("8998",)
)
VLLM = Router("vllm_router.launch_router", "vllm", "--vllm-pd-disaggregation")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def routed(folder: Path, router: Router, *lab: str) -> Iterator[str]:
    """The base URL of a real router in front of the workers of a lab."""
    if find_spec(router.module.partition(".")[0]) is None:
        missing(f"{router.module} is not installed: pip install -e '.[dev]'")
    serve = ["lab", "serve", "--announce", "--context", str(CONTEXT), "--dialect", router.dialect]
    with subprocess.Popen(
        [*COMMAND, *serve, *lab],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(folder),
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            workers = json.loads(process.stdout.readline())["workers"]
            with started(router, workers, folder) as url:
                yield url
        finally:
            process.stdin.close()


@contextmanager
def started(router: Router, workers: list[dict[str, str]], folder: Path) -> Iterator[str]:
    """A router in front of these workers, once it answers."""
    arguments = []
    for worker in workers:
        arguments += [f"--{worker['role']}", worker["url"]]
        arguments += router.after_prefill if worker["role"] == "prefill" else ()
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    with (
        (folder / "router.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", router.module, router.mode, *arguments, *where],
            stdout=log,
            stderr=log,
            env=environment(folder),
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            await_answer(url, process)
            yield f"{url}/v1"
        finally:
            process.terminate()


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    """Ask until the router is healthy."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, "the router ended"
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail("the router never answered")


def checked(folder: Path, url: str) -> tuple[Ended, RunRecord]:
    path = folder / "run.jsonl"
    options = ("--model", MODEL, "--context", str(CONTEXT), "--record", str(path))
    return kvcanary(folder, "check", url, *options), load(path)


def claims(record: RunRecord) -> dict[str, str]:
    assert record.verdict
    return {c.name.value: c.status.value for c in record.verdict.claims}


def roles(record: RunRecord) -> set[tuple[str, str, bool]]:
    """Role and engine of each worker that was discovered, and whether its pool is known."""
    assert record.facts
    return {(w.role.value, w.engine, w.pool_tokens is not None) for w in record.facts.workers}


@pytest.mark.parametrize("router", [SGLANG, VLLM], ids=["sglang-router", "vllm-router"])
def test_the_healthy_lab_passes_through_a_real_router(router: Router, tmp_path: Path) -> None:
    with routed(tmp_path, router, "healthy") as url:
        ended, record = checked(tmp_path, url)
    assert ended.code == 0, ended.said
    engine = router.dialect
    assert roles(record) == {("prefill", engine, True), ("decode", engine, True)}
    assert claims(record)["capacity"] == claims(record)["accounting"] == "pass"
    assert record.findings == ()


def test_the_incident_leaks_through_sglang_router(tmp_path: Path) -> None:
    with routed(tmp_path, SGLANG, "glm-5.3") as url:
        ended, record = checked(tmp_path, url)
    assert ended.code == 1, ended.said
    assert {f.rule for f in record.findings} >= {
        "isolation/foreign-text",
        "ownership/labels-lost",
        "capacity/pool-below-context",
        "accounting/prefill-decode",
        "accounting/refusal-not-terminal",
    }


def test_missing_pages_leak_through_vllm_router(tmp_path: Path) -> None:
    """Success without coverage: no counter shows it, the answers do."""
    long_ones = CONTEXT // 2 + CONTEXT // 8
    with routed(tmp_path, VLLM, "healthy", "--fault", f"nothing-sent@{long_ones}") as url:
        ended, record = checked(tmp_path, url)
    assert ended.code == 1, ended.said
    rules = {f.rule for f in record.findings}
    assert rules >= {"isolation/foreign-text", "ownership/labels-lost"}
    assert not {rule for rule in rules if rule.startswith("accounting/")}


@pytest.mark.parametrize(
    ("router", "scenario"),
    [(SGLANG, "glm-5.3-patched"), (VLLM, "vllm-short-prefill")],
    ids=["sglang-router", "vllm-router"],
)
def test_refusals_pass_through_a_real_router(router: Router, scenario: str, tmp_path: Path) -> None:
    with routed(tmp_path, router, scenario) as url:
        ended, record = checked(tmp_path, url)
    assert ended.code == 1, ended.said
    assert claims(record)["refusal"] == claims(record)["accounting"] == "pass"
    assert claims(record)["ownership"] == claims(record)["isolation"] == "pass"
    assert {f.rule.partition("/")[0] for f in record.findings} == {"capacity"}
    refused = [e for e in record.exchanges if e.outcome == "refused"]
    assert refused
    assert all(e.refusal and e.refusal.limit_tokens for e in refused)

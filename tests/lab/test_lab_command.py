"""``kvcanary lab`` as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import click
import httpx
import pytest
from click.testing import CliRunner

from kvcanary.cli.lab import lab, serve
from kvcanary.lab import Dialect, FreeListPolicy, Routing, faults, habits, read_truth

COMMAND = (sys.executable, "-W", "error", "-c", "from kvcanary.cli.lab import lab; lab()", "serve")
SMALL = ("--context", "4096")


def serving(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_announced_it_prints_one_line_and_ends_with_its_parent() -> None:
    with serving("glm-5.3", *SMALL, "--announce") as process:
        said = json.loads(line(process.stdout))
        assert (said["model"], said["context_tokens"]) == ("glm-5.3-lab", 4096)
        assert [worker["role"] for worker in said["workers"]] == ["prefill", "decode"]
        assert httpx.get(said["url"] + "/health", trust_env=False).status_code == 200
        rest, errors = process.communicate(timeout=20)
        assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_a_normal_end(number: signal.Signals) -> None:
    with serving("healthy", *SMALL) as process:
        shown = line(process.stdout)
        while "Ctrl-C" not in shown:
            shown += line(process.stdout)
        assert "front door  http://127.0.0.1:" in shown
        assert "kvcanary check http://127.0.0.1:" in shown
        assert "--model glm-5.3-lab --context 4096" in shown
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")


def test_a_port_in_use_and_an_unknown_name_are_exit_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(lab, ["serve", "healthy", *SMALL, "--port", port])
    assert result.exit_code == 2
    assert f"port {port}: Address already in use" in result.output
    result = CliRunner().invoke(lab, ["serve", "sick"])
    assert result.exit_code == 2
    assert "there are: healthy, glm-5.3, glm-5.3-patched" in result.output


def test_the_list_explains_each_scenario() -> None:
    result = CliRunner().invoke(lab, ["list"])
    assert result.exit_code == 0
    for words in ("healthy", "glm-5.3-patched", "681,280", "2,043,904", "S30233"):
        assert words in result.output


def test_the_list_of_habits_explains_each() -> None:
    result = CliRunner().invoke(lab, ["list", "--habits"])
    assert result.exit_code == 0
    for habit in habits():
        assert habit.usage in result.output


def test_the_list_of_faults_explains_each() -> None:
    result = CliRunner().invoke(lab, ["list", "--faults"])
    assert result.exit_code == 0
    for fault in faults():
        for words in (fault.key, fault.where, fault.wrong, fault.needs, *fault.references):
            assert words in result.output


def test_faults_are_served_and_the_truth_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    options = ("--fault", "nothing-sent@0", "--fault", "late-write:0.5@9000", "--truth", str(path))
    with serving("healthy", *SMALL, *options, "--announce") as process:
        url = json.loads(line(process.stdout))["url"]
        body = {"model": "m", "prompt": "a gate and a door", "max_tokens": 3}
        headers = {"X-Request-Id": "mine"}
        httpx.post(f"{url}/v1/completions", json=body, headers=headers, trust_env=False)
        assert not path.exists()
        process.communicate(timeout=20)
        assert process.returncode == 0
    (exchange,) = read_truth(path)
    assert (exchange.request, exchange.struck) == ("mine", ("nothing-sent",))
    assert exchange.wrong_tokens == exchange.prompt_tokens == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fault", "late-wright"], "did you mean 'late-write'"),
        (["--fault", "late-write:7"], "a rate is a number from 0 to 1"),
    ],
)
def test_a_fault_that_is_none_is_exit_2(options: list[str], said: str) -> None:
    result = CliRunner().invoke(lab, ["serve", "healthy", *SMALL, *options])
    assert result.exit_code == 2
    assert said in result.output


def test_options_and_habits_reach_the_lab_that_is_served() -> None:
    options = ("--routing", "lockstep", "--free-list", "fifo")
    habit = ("--habit", "no-length", "--habit", "tpm=100")
    with serving("2x2", *SMALL, *options, *habit, "--announce") as process:
        said = json.loads(line(process.stdout))
        names = [(worker["name"], worker["role"]) for worker in said["workers"]]
        assert names == [("P1", "prefill"), ("P2", "prefill"), ("D1", "decode"), ("D2", "decode")]
        models = httpx.get(said["url"] + "/v1/models", trust_env=False).json()
        assert "max_model_len" not in models["data"][0]
        fields = {"prompt": "a " * 150}
        answer = httpx.post(said["url"] + "/v1/completions", json=fields, trust_env=False)
        assert answer.status_code == 429
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--habit", "chater"), "did you mean 'chatter'"),
        (("--free-list", "stack"), "'lifo', 'fifo', 'sorted'"),
        (("--routing", "best"), "'round_robin', 'lockstep'"),
    ],
)
def test_options_that_there_are_not_are_exit_2(options: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(lab, ["serve", "healthy", *SMALL, *options])
    assert result.exit_code == 2
    assert says in result.output


def test_the_choices_of_the_command_line_are_those_of_the_lab() -> None:
    choices = {
        option.name: tuple(option.type.choices)
        for option in serve.params
        if isinstance(option.type, click.Choice)
    }
    assert choices == {
        "free_list": tuple(FreeListPolicy),
        "routing": tuple(Routing),
        "dialect": tuple(Dialect),
    }

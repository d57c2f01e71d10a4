"""Two runs against one deployment exclude each other, for as long as they run and no longer."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kvcanary.deployment.lock import only_run
from kvcanary.errors import ConfigError, UsageError
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.events import Silence
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import ExitCode
from tests.cli.command import kvcanary
from tests.instrument.lab_runs import Setup, finished, run_in

URL = "http://127.0.0.1:9/v1"


def test_the_second_is_refused_and_the_third_is_not(tmp_path: Path) -> None:
    with only_run(URL, tmp_path):
        with pytest.raises(UsageError, match="Another kvcanary run"), only_run(URL, tmp_path):
            pass
        with only_run("http://127.0.0.1:10/v1", tmp_path):
            pass
    with only_run(URL, tmp_path):
        pass


def test_it_is_released_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_run(URL, tmp_path):
        raise ZeroDivisionError
    with only_run(URL, tmp_path):
        pass


@pytest.mark.parametrize("spelt", [f"{URL}/", "HTTP://127.0.0.1:9/v1", "http://127.0.0.1:9"])
def test_spellings_of_one_url_are_one_deployment(spelt: str, tmp_path: Path) -> None:
    with (
        only_run(Endpoint(URL, "m").base_url, tmp_path),
        pytest.raises(UsageError),
        only_run(Endpoint(spelt, "m").base_url, tmp_path),
    ):
        pass


def test_default_ports_and_capitals_too(tmp_path: Path) -> None:
    with only_run("https://llm.example.com/v1", tmp_path):
        with pytest.raises(UsageError), only_run("https://LLM.example.com:443/v1", tmp_path):
            pass
        for other in ("http://llm.example.com/v1", "https://llm.example.com/other/v1"):
            with only_run(other, tmp_path):
                pass


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"), only_run(URL, tmp_path / "file" / "x"):
        pass


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from kvcanary.deployment.lock import only_run\n"
        "with only_run(sys.argv[1], Path(sys.argv[2])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, URL, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError), only_run(URL, tmp_path):
            pass
        holder.kill()
    with only_run(URL, tmp_path):
        pass


def test_the_command_says_so_and_exits_2(tmp_path: Path) -> None:
    with only_run(URL, tmp_path / "state" / "locks"):
        ended = kvcanary(tmp_path, "check", URL, "--model", "m")
    assert ended.code == 2
    assert "Another kvcanary run on this host is testing" in ended.said
    ended = kvcanary(tmp_path, "check", URL, "--model", "m")
    assert "Another kvcanary run" not in ended.said


class FirstPhase(Silence):
    """Tells when a run has begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def phase(self, text: str, requests: int, tokens: int) -> None:
        self.begun.set()


def test_a_second_run_is_refused_while_the_first_goes_on_undisturbed() -> None:
    setup = Setup()

    async def both() -> RunRecord:
        async with setup.lab() as lab:
            listener = FirstPhase()
            first = asyncio.create_task(run_in(lab, setup, listener))
            await listener.begun.wait()
            with pytest.raises(UsageError, match="Another kvcanary run"):
                await run_in(lab, setup)
            return await first

    record = finished(both())
    assert record.verdict
    assert record.verdict.exit_code is ExitCode.PASS

"""--on-leak: told what was found, at a leak and only then, and without a say in the verdict."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvcanary.cli.targets import Connection, secret_variables
from kvcanary.errors import UsageError
from kvcanary.report import hook
from kvcanary.report.hook import call_on_leak, words_of
from kvcanary.verdict.claims import ExitCode
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import finding, healthy
from tests.cli.command import kvcanary

KEEP = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"


def keeping(folder: Path, then: str = "") -> tuple[list[str], Path]:
    """A hook that writes what it was told into a file."""
    told = folder / "told.json"
    return [sys.executable, "-c", f"{KEEP}\n{then}", str(told)], told


def test_it_is_told_of_leaks_in_json(tmp_path: Path) -> None:
    command, told = keeping(tmp_path)
    other = finding(rule="capacity/pool-below-context", severity=Severity.CAPACITY)
    run = healthy(findings=(finding(), other))
    run = run.model_copy(update={"verdict": judge(run, ()).verdict})
    call_on_leak(command, run)
    said = json.loads(told.read_text())
    assert said["run"] == f"{run.info.run:07x}"
    assert [f["rule"] for f in said["findings"]] == ["isolation/foreign-text"]
    assert isinstance(said["exit_code"], int)


@pytest.mark.parametrize("severity", [s for s in Severity if s is not Severity.LEAK])
def test_it_is_called_for_a_leak_only(severity: Severity, tmp_path: Path) -> None:
    command, told = keeping(tmp_path)
    call_on_leak(command, healthy(findings=(finding(severity=severity),)))
    call_on_leak(command, healthy())
    assert not told.exists()


@pytest.mark.parametrize("then", ["sys.exit(7)", "raise ValueError", "sys.stdin.close()"])
def test_its_failure_is_said_and_no_more(
    then: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command, told = keeping(tmp_path, then)
    call_on_leak(command, healthy(findings=(finding(),)))
    assert told.exists()
    out, err = capfd.readouterr()
    assert out == ""
    assert ("--on-leak command failed" in err) is (then != "sys.stdin.close()")


def test_one_that_does_not_listen_is_no_error(tmp_path: Path) -> None:
    call_on_leak([sys.executable, "-c", ""], healthy(findings=(finding(title="x" * 1_000_000),)))


def test_what_it_prints_stays_off_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    call_on_leak([sys.executable, "-c", "print('paged')"], healthy(findings=(finding(),)))
    assert capfd.readouterr() == ("", "paged\n")


@pytest.mark.parametrize("command", ["", " ", "no-such-command-here --x", "'open", "/dev/null"])
def test_one_that_cannot_run_is_refused_before_the_run(command: str) -> None:
    with pytest.raises(UsageError, match="--on-leak"):
        words_of(command)


@pytest.mark.parametrize("command", ["no-such-command --token hunter2", "'open --token hunter2"])
def test_a_command_that_cannot_run_is_not_repeated(command: str) -> None:
    with pytest.raises(UsageError) as caught:
        words_of(command)
    assert "hunter2" not in str(caught.value)


HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=2)
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


def test_one_that_hangs_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hook, "HOOK_SECONDS", 3.0)
    pids = tmp_path / "pids"
    call_on_leak(
        [sys.executable, "-c", HANGS, str(pids), "hunter2"], healthy(findings=(finding(),))
    )
    err = capfd.readouterr().err
    assert "did not end within 3 seconds, and was killed" in err
    assert "hunter2" not in err, "its words may hold a token"
    patience = time.monotonic() + 30  # a process that was killed may take a moment to go
    while any(not _is_over(pid) for pid in pids.read_text().split()):
        assert time.monotonic() < patience
        time.sleep(0.01)


def _is_over(pid: str) -> bool:
    """Gone, or waiting to be buried by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_interrupted_one_leaves_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    call_on_leak(
        [sys.executable, "-c", "import time; time.sleep(600)"], healthy(findings=(finding(),))
    )
    assert "failed: it was interrupted" in capfd.readouterr().err


def test_it_does_not_get_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVCANARY_API_KEY", "hunter2")
    monkeypatch.setenv("SWORDFISH", "hunter2")
    monkeypatch.setenv("PAGER", "less")
    file = tmp_path / "deployment.yaml"
    file.write_text("key: ${SWORDFISH}\nhome: ${HOME}\nprice: $${PAGER}\n")
    secret = secret_variables(Connection(str(file)))
    assert secret == {"KVCANARY_API_KEY", "KVCANARY_PUSHGATEWAY_AUTH", "SWORDFISH"}
    show = "import os; print(sorted(os.environ.items()))"
    call_on_leak([sys.executable, "-c", show], healthy(findings=(finding(),)), secret)
    err = capfd.readouterr().err
    assert "hunter2" not in err
    assert "'PAGER', 'less'" in err
    assert secret_variables(Connection("http://x", api_key_env="MINE")) == {
        "KVCANARY_API_KEY",
        "KVCANARY_PUSHGATEWAY_AUTH",
        "MINE",
    }


def test_words_and_no_shell() -> None:
    assert words_of("echo 'a b' $HOME; true") == ["echo", "a b", "$HOME;", "true"]


def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "hook.py"
    told = tmp_path / "told.json"
    script.write_text(f"{KEEP}\nprint('paged')\nsys.exit(9)")
    ended = kvcanary(
        tmp_path,
        "check",
        "lab:glm-5.3?context=4096",
        "-o",
        "json",
        "--on-leak",
        f"{sys.executable} {script} {told}",
    )
    assert ended.code == ExitCode.VIOLATION
    record = json.loads(ended.out)  # nothing else on standard output
    said = json.loads(told.read_text())
    assert said["exit_code"] == ExitCode.VIOLATION
    assert {f["severity"] for f in said["findings"]} == {"leak"}
    assert said["headline"] == record["verdict"]["headline"]
    assert "failed: it ended with 9" in ended.err


def test_a_hook_that_is_not_there_stops_the_run_before_it_starts(tmp_path: Path) -> None:
    ended = kvcanary(tmp_path, "check", "lab:healthy", "--on-leak", "no-such-command-here")
    assert ended.code == 2
    assert "there is no such command" in ended.err
    assert not (tmp_path / "state").exists()

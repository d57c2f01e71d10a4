"""A run that was killed leaves a valid record, from which it goes on to the verdict it would have had."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kvcanary.record.exchange import Purpose
from kvcanary.record.journal import PARTIAL, Journal, load
from kvcanary.record.run import RunRecord
from kvcanary.verdict.judge import judge
from tests.builders import healthy
from tests.cli.command import COMMAND, environment, kvcanary
from tests.instrument.served_lab import served


def killed(folder: Path, url: str, purpose: Purpose) -> Path:
    """A check that ends by SIGKILL once its journal holds an exchange of that purpose."""
    path = folder / "first.jsonl"
    partial = path.with_name(path.name + PARTIAL)
    process = subprocess.Popen(
        [*COMMAND, "check", url, "--context", "4096", "--record", str(path), "-q"],
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_recorded(partial, purpose, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return partial


def _until_recorded(partial: Path, purpose: Purpose, process: subprocess.Popen[bytes]) -> None:
    """Looks now and then; what it waits for is an event, not a time."""
    wanted = f'"purpose": {json.dumps(purpose.value)}'
    while process.poll() is None:
        if partial.exists() and wanted in partial.read_text():
            return
        time.sleep(0.005)
    raise AssertionError("the run was over before it could be killed")


def resumed(folder: Path, url: str, partial: Path) -> tuple[int, RunRecord]:
    ended = kvcanary(
        folder, "check", url, "--context", "4096", "--resume", str(partial), "-q", "-o", "json"
    )
    return ended.code, load(folder / "first-resumed.jsonl")


@pytest.mark.parametrize(
    ("scenario", "purpose", "code"),
    [
        ("healthy", Purpose.CALIBRATION, 0),
        ("healthy", Purpose.READER, 0),
        ("glm-5.3", Purpose.CONTROL, 1),
    ],
)
def test_killed_in_the_middle_it_goes_on_to_its_verdict(
    scenario: str, purpose: Purpose, code: int, tmp_path: Path
) -> None:
    with served(tmp_path, "--context", "4096", scenario) as url:
        partial = killed(tmp_path, url, purpose)
        earlier = load(partial)
        assert earlier.verdict is None
        assert earlier.exchanges
        shown = kvcanary(tmp_path, "report", str(partial))
        again = kvcanary(tmp_path, "replay", str(partial), "F1", "--text", "fresh")
        ended, record = resumed(tmp_path, url, partial)
    # What it had found by then is said. It never passes.
    assert shown.code == (1 if purpose is Purpose.CONTROL else 3)
    assert "interrupted" in shown.said
    assert ("F1 leak" in shown.said) is (shown.code == 1)
    assert again.code == (1 if purpose is Purpose.CONTROL else 2)
    assert ended == code
    assert record.info.run == earlier.info.run
    assert record.verdict
    assert record.stopped is None
    numbers = [e.number for e in record.exchanges if e.purpose is not Purpose.CALIBRATION]
    assert len(numbers) == len(set(numbers))
    if purpose is not Purpose.CALIBRATION:
        assert {e.number for e in earlier.exchanges} <= {e.number for e in record.exchanges}
        readers = [e for e in record.exchanges if e.purpose is Purpose.READER]
        assert {e.group for e in readers} > {e.group for e in earlier.exchanges} & {"half"}
        # What may have been in flight has other text now: a prefix cache would answer for the old.
        fresh = [
            e for e in record.exchanges if e.number not in {x.number for x in earlier.exchanges}
        ]
        assert not any(e.cached_tokens for e in fresh)
    else:
        # Nothing was planned yet: it begins anew, with text that no cache has seen.
        seen = max(e.number for e in earlier.exchanges)
        assert min(e.number for e in record.exchanges) > seen


URL = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record that ended before its first answer, of a target that is not there."""
    tmp_path = tmp_path_factory.mktemp("stub")
    path = tmp_path / "first.jsonl"
    ended = kvcanary(
        tmp_path, "check", URL, "--model", "m", "--context", "4096", "--record", str(path)
    )
    assert ended.code == 2
    return path.with_name(path.name + PARTIAL)


def test_another_site_key_cannot_write_its_text_again(stub: Path, tmp_path: Path) -> None:
    ended = kvcanary(
        tmp_path,
        *("check", URL, "--model", "m", "--resume", str(stub)),
        extra={"KVCANARY_SITE_KEY_FILE": str(tmp_path / "other.key")},
    )
    assert ended.code == 2
    assert "another site key" in ended.said


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("http://127.0.0.1:10/v1", "--model", "m", "--context", "4096"), "target"),
        ((URL, "--model", "n", "--context", "4096"), "model"),
        ((URL, "--model", "m"), "--context"),
        (
            (URL, "--model", "m", "--context", "4096", "--suite", "smoke"),
            "suite",
        ),
        (
            (URL, "--model", "m", "--context", "4096", "--api", "completions"),
            "--api",
        ),
    ],
)
def test_what_is_not_the_same_run_does_not_go_on_with_it(
    arguments: tuple[str, ...], word: str, stub: Path
) -> None:
    ended = kvcanary(stub.parent, "check", *arguments, "--resume", str(stub))
    assert ended.code == 2
    assert f"had the {word} " in ended.said


def test_a_run_that_is_over_does_not_go_on(tmp_path: Path) -> None:
    path = tmp_path / "whole.jsonl"
    run = healthy()
    with Journal(path) as journal:
        journal.append("info", run.info)
        journal.append("verdict", judge(run, ()).verdict)
        journal.complete()
    ended = kvcanary(tmp_path, "check", URL, "--resume", str(path))
    assert ended.code == 2
    assert "is complete: see `kvcanary report" in ended.said


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_last_line_that_was_cut_short_is_left_out(cut: int, stub: Path, tmp_path: Path) -> None:
    text = stub.read_text()
    assert text.count("\n") > 1
    partial = tmp_path / "cut.jsonl"
    partial.write_text(text[:-cut] if cut < len(text.splitlines()[-1]) else text)
    assert load(partial).info.model == "m"

"""``kvcanary selftest`` as a process: the matrix, its exit codes, and what is left when it is cut off."""

import json
import signal
import subprocess
from pathlib import Path

from kvcanary.selftest.matrix import Selftest
from tests.cli.command import COMMAND, GUARD_SECONDS, environment, kvcanary

SMALL = ("selftest", "--suite", "smoke", "--besides", "none", "--jobs", "2")


def test_a_fault_is_caught_and_an_innocent_is_not_accused(tmp_path: Path) -> None:
    records = tmp_path / "records"
    ended = kvcanary(
        tmp_path,
        *SMALL,
        *("--fault", "other-pages-sent", "--look-alike", "quoting", "-o", "json"),
        *("--records", str(records)),
    )
    assert ended.code == 0, ended.said
    assert "1 of 2 cases" in ended.err
    whole = Selftest.model_validate(json.loads(ended.out))
    assert whole.complete
    caught, innocent = whole.results
    assert (caught.case.key, innocent.case.key) == ("other-pages-sent", "quoting")
    assert caught.hit > caught.named > 0
    assert innocent.exchanges
    assert not innocent.accusations
    assert sorted(p.name for p in records.iterdir()) == ["other-pages-sent.jsonl", "quoting.jsonl"]


def test_a_fault_that_nothing_catches_is_named_and_exits_1(tmp_path: Path) -> None:
    """With a rate of 0 it never goes off: so no probe can catch it."""
    ended = kvcanary(tmp_path, *SMALL, "--fault", "tail-missing:0", "--explain")
    assert ended.code == 1
    assert "error of kvcanary: tail-missing:0: never hit" in ended.out
    assert "0 of 1 faults caught" in ended.out


def test_unknown_names_are_told_before_anything_is_run(tmp_path: Path) -> None:
    for arguments, told in (
        (("--fault", "tail-missin"), "did you mean 'tail-missing'?"),
        (("--look-alike", "nobody"), "There is no look-alike 'nobody'"),
        (("--suite", "nosuite"), "nosuite"),
        (("--besides", "nosuite"), "nosuite"),
    ):
        ended = kvcanary(tmp_path, "selftest", *arguments)
        assert ended.code == 2
        assert told in ended.said


def test_ctrl_c_shows_what_was_run_until_then(tmp_path: Path) -> None:
    command = [*COMMAND, "selftest", "--suite", "smoke", "--jobs", "1", "-o", "json"]
    with subprocess.Popen(
        command,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        while "1 of " not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=GUARD_SECONDS)
    assert process.returncode == 130
    assert err.endswith("Interrupted.\n")
    whole = Selftest.model_validate(json.loads(out))
    assert not whole.complete
    assert 1 <= len(whole.results) < 10

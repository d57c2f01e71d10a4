"""``kvcanary scan`` as a process: files, pipes, Ctrl-C, exit codes."""

import array
import fcntl
import gzip
import io
import json
import os
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from kvcanary.scan.result import ScanResult
from tests.builders import exchange, info, record
from tests.canary.scene import KEY
from tests.cli.command import COMMAND, GUARD_SECONDS, Ended, environment, kvcanary
from tests.scan.stored import ANOTHER, CODE, RUN, STRANGE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the key that the markers were made with."""
    key = tmp_path / "site.key"
    key.write_text(KEY.secret.hex() + "\n")
    key.chmod(0o600)
    return tmp_path


def result(ended: Ended) -> ScanResult:
    return ScanResult.model_validate_json(ended.out)


def test_what_is_told_of_a_marker_is_where_it_stands_and_not_the_text_around(folder: Path) -> None:
    log = folder / "log"
    log.write_text(f"a customer's secret: {CODE} and more of it\n{STRANGE}\n")
    ended = kvcanary(folder, "scan", str(log))
    assert ended.code == 1
    assert f"{CODE}  {log}:21  whole" in ended.out
    assert f"{STRANGE}  {log}:60  of another key" in ended.out
    assert f"({RUN:07x}), request 7" in ended.out
    assert "secret" not in ended.said
    assert KEY.secret.hex() not in ended.said
    shown = kvcanary(folder, "scan", str(log), "--context", "10")
    assert "\n      s secret: KVC-" in shown.out
    assert "customer" not in shown.out


def test_json_says_the_same_and_so_does_the_exit_code(folder: Path) -> None:
    (folder / "log").write_text(f"{CODE}\n")
    ended = kvcanary(folder, "scan", str(folder / "log"), "-o", "json")
    (hit,) = result(ended).hits
    assert (hit.marker, hit.offset, hit.status.value, hit.context) == (CODE, 0, "found", None)
    assert ended.code == result(ended).exit_code == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [("nothing", 0), (STRANGE, 0), (f"{{{CODE}", 3)],
    ids=["clean", "strange", "unread"],
)
def test_the_other_exit_codes(folder: Path, content: str, code: int) -> None:
    (folder / "log").write_text(content)
    assert kvcanary(folder, "scan", str(folder / "log"), "--field", "a").code == code


def test_what_cannot_be_read_is_2_unless_something_is_found_elsewhere(folder: Path) -> None:
    (folder / "log").write_text("nothing")
    missing = kvcanary(folder, "scan", str(folder / "missing"), str(folder / "log"))
    assert missing.code == 2
    assert "missing: No such file or directory" in missing.out
    (folder / "log").write_text(CODE)
    assert kvcanary(folder, "scan", str(folder / "missing"), str(folder / "log")).code == 1


def test_parts_are_found_with_the_record_that_planted_them(folder: Path) -> None:
    run = record(
        exchange(7, chapters_before=2, chapters_after=3),
        info=info(run=RUN, site_key=KEY.fingerprint()),
    )
    lines = [{"kind": "info", "value": run.info.model_dump(mode="json")}]
    lines += [{"kind": "exchange", "value": e.model_dump(mode="json")} for e in run.exchanges]
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "log").write_text(f"it is {CODE[4:19]}, and so on")
    without = kvcanary(folder, "scan", str(folder / "log"))
    assert (without.code, "whole markers only" in without.said) == (0, True)
    ended = kvcanary(folder, "scan", str(folder / "log"), "--record", str(folder / "run.jsonl"))
    assert ended.code == 1
    assert f"{CODE[:18]}-....  {folder / 'log'}:6  12 of 16 characters" in ended.out
    assert "`" + run.exchanges[0].group + "`" in ended.out


def test_without_a_site_key_nothing_could_be_recognised(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(CODE)
    ended = kvcanary(tmp_path, "scan", str(tmp_path / "log"))
    assert ended.code == 2
    assert "There is no site key" in ended.said
    assert not (tmp_path / "site.key").exists()


def test_several_processes_see_what_one_sees(folder: Path) -> None:
    for number in range(8):
        code = CODE if number % 2 else ANOTHER.lower()
        (folder / f"{number}.gz").write_bytes(gzip.compress(f"{number} {code}\n".encode() * 3))
    names = [str(folder / f"{number}.gz") for number in range(8)]
    several, one = (
        result(kvcanary(folder, "scan", *names, "--jobs", jobs, "-o", "json"))
        for jobs in ("3", "1")
    )
    assert len(one.hits) == 24
    unweighed = {"odds": None}  # each process counts for itself what it has tried
    assert [h.model_copy(update=unweighed) for h in several.hits] == [
        h.model_copy(update=unweighed) for h in one.hits
    ]
    assert several.files == one.files


def test_a_pipe_is_read_to_its_end_compressed_or_not(folder: Path) -> None:
    for content in (CODE.encode(), gzip.compress(b"." * 100_000 + CODE.encode())):
        ended = subprocess.run(
            [*COMMAND, "scan", "-", "-o", "json"],
            input=content,
            env=environment(folder),
            capture_output=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
        assert ended.returncode == 1
        (hit,) = ScanResult.model_validate_json(ended.stdout).hits
        assert (hit.file, hit.marker) == ("standard input", CODE)


def test_ctrl_c_on_an_endless_stream_tells_what_was_seen_until_then(folder: Path) -> None:
    (folder / "log").write_text(ANOTHER)
    os.mkfifo(folder / "pipe")
    names = [str(folder / "log"), str(folder / "pipe")]
    state = ["--state", str(folder / "scanned")]
    command = [*COMMAND, "scan", *names, *state, "-o", "json"]
    process = subprocess.Popen(
        command,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_heed_ctrl_c,
    )
    try:
        with io.FileIO(folder / "pipe", "w") as pipe:
            pipe.write(f"so far: {CODE} and".encode())
            _wait_until_read(pipe, process.pid)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=GUARD_SECONDS)
    finally:
        process.kill()
        process.wait()
    seen = ScanResult.model_validate_json(out)
    assert process.returncode == 130, err
    assert seen.stopped == "interrupted"
    assert [(Path(h.file).name, h.marker) for h in seen.hits] == [("log", ANOTHER), ("pipe", CODE)]
    assert b"Traceback" not in err
    again = result(kvcanary(folder, "scan", names[0], *state, "-o", "json"))
    assert [h.marker for h in again.hits] == [ANOTHER], "told by no scan that reached its end"
    assert result(kvcanary(folder, "scan", names[0], *state, "-o", "json")).hits == ()


def _heed_ctrl_c() -> None:
    """Whatever started the tests (a shell's background) may have it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_until_read(pipe: io.FileIO, reader: int) -> None:
    """Until the pipe is empty, and its reader waits for more."""
    deadline = time.monotonic() + GUARD_SECONDS
    waiting = array.array("i", [1])
    while time.monotonic() < deadline:
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        state = Path(f"/proc/{reader}/stat").read_text().rpartition(")")[2].split()[0]
        if not waiting[0] and state == "S":
            return
    raise AssertionError("nobody reads the pipe")


def test_a_reader_that_goes_away_is_no_error_of_ours(folder: Path) -> None:
    (folder / "log").write_text(f"{CODE}\n" * 2_000)
    ended = subprocess.run(
        [
            "bash",
            "-c",
            '"$@" | head -1; exit ${PIPESTATUS[0]}',
            "-",
            *COMMAND,
            "scan",
            str(folder / "log"),
        ],
        env=environment(folder),
        capture_output=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--field", "a..b", "x"], "names no field"),
        (["--context", "5000", "x"], "is not in the range"),
        (["--jobs", "0", "x"], "is not in the range"),
        (["--record", "missing", "x"], "cannot be read"),
        ([], "Missing argument"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_told(
    folder: Path, arguments: list[str], said: str
) -> None:
    ended = kvcanary(folder, "scan", *arguments)
    assert ended.code == 2
    assert said in ended.said

"""``kvcanary check`` when its surroundings fail: interrupts, full disks, closed pipes, odd terminals, secrets."""

import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcanary.record.journal import load
from kvcanary.record.run import RunRecord
from tests.cli.command import (
    COMMAND,
    GUARD_SECONDS,
    check_against,
    environment,
    front_door,
    kvcanary,
    records,
)
from tests.probing.rogue_server import Call

HEALTHY = "lab:healthy?context=4096"
SICK = "lab:glm-5.3?context=8192"
SECRET = "sk-SECRET-0123456789abcdef"


def children_of(process: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            yield int(entry.name)


def alive(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[
            0
        ] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_valid_partial_record_and_no_lab(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    with subprocess.Popen(
        [*COMMAND, "check", "lab:healthy", "--record", str(path)],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "victims" in line:
                break
        (lab,) = children_of(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=GUARD_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-2] == "Interrupted."
    assert err.splitlines()[-1].endswith(f"kvcanary report {path}.partial")
    assert out == ""
    assert not alive(lab)
    assert not path.exists()
    record = load(Path(f"{path}.partial"))
    assert record.stopped == "interrupted"
    assert record.verdict is None
    assert record.facts
    assert record.exchanges
    shown = kvcanary(tmp_path, "report", f"{path}.partial")
    assert shown.code == 3
    assert " INCONCLUSIVE   interrupted" in shown.out


@pytest.mark.parametrize(
    ("number", "first"),
    [
        (signal.SIGINT, ""),
        (signal.SIGTERM, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "),
    ],
    ids=["interrupt", "terminated in the background of a script"],
)
def test_an_interrupt_while_nothing_answers(
    number: signal.Signals, first: str, tmp_path: Path
) -> None:
    async def interrupting(call: Call) -> None:
        if call.method == "POST":
            os.kill(int(call.fields["model"]), number)
        await call.disconnected()

    # The model's name is how the server learns whom to interrupt.
    script = (
        f"{first}import os, sys; sys.argv[1:] = ['check', sys.argv[1], '--model', str(os.getpid()), "
        "'--context', '8192', '--deadline', '60']; from kvcanary.cli import main; main()"
    )

    async def exchange() -> tuple[int | None, str]:
        import asyncio

        from tests.probing.rogue_server import rogue_server

        async with rogue_server(front_door(interrupting)) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                script,
                server.base_url,
                env=environment(tmp_path),
                stderr=subprocess.PIPE,
            )
            _, err = await asyncio.wait_for(process.communicate(), GUARD_SECONDS)
            return process.returncode, err.decode()

    from tests.probing.rogue_server import run

    code, err = run(exchange())
    assert code == 130
    assert "Traceback" not in err
    (path,) = records(tmp_path)
    assert load(path).stopped == "interrupted"


@pytest.mark.parametrize(("size", "shown"), [(3_000, 3), (12_000, 1)])
def test_a_full_disk_is_said_and_the_verdict_stands(size: int, shown: int, tmp_path: Path) -> None:
    """The file may not grow past ``size`` bytes: what a full disk does, to this process alone. Shown again
    it is judged as far as it went: the pools, if they are in it, are too small whatever followed."""
    kvcanary(tmp_path, "check", "lab:nope")
    ended = subprocess.run(
        [*COMMAND, "check", SICK, "--quiet"],
        capture_output=True,
        env=environment(tmp_path),
        text=True,
        timeout=GUARD_SECONDS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        check=False,
    )
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 1
    assert "could not be written to its end: File too large" in ended.stderr
    assert " FAIL " in ended.stdout
    (path,) = records(tmp_path)
    assert path.suffix == ".partial"
    assert load(path).verdict is None
    assert bool(load(path).facts) is (shown == 1)
    assert kvcanary(tmp_path, "report", str(path)).code == shown


def test_a_report_that_cannot_be_written_never_hides_the_verdict(tmp_path: Path) -> None:
    healthy = tmp_path / "healthy.jsonl"
    sick = tmp_path / "sick.jsonl"
    assert kvcanary(tmp_path, "check", HEALTHY, "--record", str(healthy)).code == 0
    assert kvcanary(tmp_path, "check", SICK, "--record", str(sick)).code == 1
    for record, code in ((healthy, 2), (sick, 1)):
        ended = subprocess.run(
            [*COMMAND, "report", str(record), "--report", f"json={tmp_path / 'big.json'}"],
            capture_output=True,
            env=environment(tmp_path),
            text=True,
            timeout=GUARD_SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)),
            check=False,
        )
        assert "Traceback" not in ended.stderr
        assert ended.returncode == code
        assert "big.json cannot be written: File too large" in ended.stderr
    assert [p.name for p in tmp_path.iterdir() if "big" in p.name] == []


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_goes_away_changes_nothing(output: str, tmp_path: Path) -> None:
    path, report = tmp_path / "run.jsonl", tmp_path / "junit.xml"
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [
            *COMMAND,
            "check",
            SICK,
            "-q",
            "-o",
            output,
            "--record",
            str(path),
            "--report",
            f"junit={report}",
        ],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert load(path).verdict is not None
    assert "<failure" in report.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("lab", "list"),
        ("lab", "list", "--habits"),
        ("probes",),
        ("suites",),
        ("explain",),
        ("explain", "oversize"),
        ("plan", "https://nobody.invalid/v1", "--offline", "--context", "4096"),
        ("--help",),
    ],
    ids=" ".join,
)
def test_a_list_whose_reader_goes_away_ends_quietly(words: tuple[str, ...], tmp_path: Path) -> None:
    """Never as a violation (1), and without a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [*COMMAND, *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (2, "")


# what is printed


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sick")
    path = folder / "run.jsonl"
    ended = kvcanary(folder, "check", SICK, "--quiet", "-o", "json", "--record", str(path))
    assert (ended.code, ended.err) == (1, "")
    printed = RunRecord.model_validate_json(ended.out)
    assert printed == load(path)
    assert RunRecord.model_validate(json.loads(ended.out)) == printed
    return path


def test_json_on_standard_output_is_the_record_and_nothing_else(sick: Path) -> None:
    ended = kvcanary(sick.parent, "report", str(sick), "-o", "json")
    assert (ended.code, ended.err) == (1, "")
    assert RunRecord.model_validate_json(ended.out) == load(sick)


def on_a_terminal(
    folder: Path, *arguments: str, columns: int = 80, extra: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run with a terminal as standard output and error."""
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), **(extra or {})}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(folder, settings),
    )
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], GUARD_SECONDS)[0]:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    return process.wait(GUARD_SECONDS), seen.decode()


def test_colours_on_a_terminal_and_none_where_they_are_not_wanted(sick: Path) -> None:
    code, shown = on_a_terminal(sick.parent, "report", str(sick))
    assert code == 1
    assert "\x1b[" in shown
    code, shown = on_a_terminal(sick.parent, "report", str(sick), extra={"NO_COLOR": "1"})
    assert code == 1
    assert "FAIL" in shown
    assert not re.search(r"\x1b\[[0-9;]*\b(3[0-7]|9[0-7])[;m]", shown)  # bold and italic may stay
    assert "\x1b" not in kvcanary(sick.parent, "report", str(sick)).out


def test_forty_columns_lose_no_figure(sick: Path) -> None:
    record = load(sick)
    assert record.verdict
    ended = kvcanary(sick.parent, "report", str(sick), extra={"COLUMNS": "40"})
    assert ended.code == 1
    for stratum in record.verdict.strata:
        assert f"{stratum.longest_tokens:,}" in ended.out
        assert stratum.name in ended.out
    assert record.verdict.headline in ended.out
    for finding in record.findings:
        assert finding.title in ended.out


def test_progress_on_a_small_terminal(tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, "check", HEALTHY, columns=40)
    assert code in (0, 3), "what little pool it has may not be dirtied on a busy machine"
    assert "Traceback" not in shown
    assert "Claims" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_terminal_that_is_not_utf_8(encoding: str, tmp_path: Path) -> None:
    async def handler(call: Call) -> None:
        await call.answer(429)

    extra = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    ended = check_against(handler, tmp_path, "--model", "模型-é", "--context", "8192", extra=extra)
    assert ended.code == 3
    assert "Traceback" not in ended.said
    assert "\\u6a21\\u578b" in ended.out
    assert "rate limited" in ended.said


# secrets


def test_the_key_stands_nowhere(tmp_path: Path) -> None:
    keys: list[str] = []

    async def refusing(call: Call) -> None:
        keys.append(call.headers.get("authorization", ""))
        body = json.dumps({"error": {"message": f"bad key {SECRET} BODYTEXT"}}).encode()
        await call.answer(401, body)

    async def failing(call: Call) -> None:
        keys.append(call.headers.get("authorization", ""))
        await call.answer(500, f"{SECRET} BODYTEXT".encode(), "text/plain")

    report = tmp_path / "junit.xml"
    said = ""
    for handler in (refusing, failing):
        ended = check_against(
            handler,
            tmp_path,
            "--model", "tiny", "--context", "8192",
            "--report", f"junit={report}", "--report", f"json={tmp_path / 'report.json'}",
            extra={"KVCANARY_API_KEY": SECRET},
        )  # fmt: skip
        assert ended.code in (2, 3)
        said += ended.said
    ended = kvcanary(tmp_path, "check", HEALTHY, extra={"KVCANARY_API_KEY": SECRET})
    assert ended.code == 0
    assert set(keys) == {f"Bearer {SECRET}"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 6
    for text in [said, ended.said, *(path.read_text() for path in files)]:
        assert SECRET not in text
        assert "SECRET" not in text
        assert "BODYTEXT" not in text


def test_a_key_that_no_header_can_carry_is_not_repeated(tmp_path: Path) -> None:
    ended = kvcanary(tmp_path, "check", HEALTHY, extra={"KVCANARY_API_KEY": f"{SECRET}\nX: y"})
    assert ended.code == 2
    assert "Traceback" not in ended.said
    assert "SECRET" not in ended.said
    assert "no HTTP header can carry" in ended.said
    assert not records(tmp_path)


def test_another_variable_may_hold_the_key(tmp_path: Path) -> None:
    keys: list[str] = []

    async def handler(call: Call) -> None:
        keys.append(call.headers.get("authorization", ""))
        await call.answer(401)

    extra = {"KVCANARY_API_KEY": "sk-wrong", "OTHER": SECRET}
    ended = check_against(
        handler, tmp_path, "--model", "tiny", "--api-key-env", "OTHER", extra=extra
    )
    assert ended.code == 2
    assert set(keys) == {f"Bearer {SECRET}"}


def test_the_command_on_a_leak_does_not_speak_on_standard_output(tmp_path: Path) -> None:
    """It is told without server text, its failure changes no verdict, and JSON stays JSON."""
    ended = kvcanary(
        tmp_path, "check", SICK, "-q", "-o", "json",
        "--on-leak", f"{sys.executable} -c \"import sys; print('heard', len(sys.stdin.read())); sys.exit(7)\"",
    )  # fmt: skip
    assert ended.code == 1
    assert RunRecord.model_validate_json(ended.out).findings
    assert "heard " in ended.err
    assert "The --on-leak command failed: it ended with 7." in ended.err

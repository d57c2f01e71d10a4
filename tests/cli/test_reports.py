"""``--report``, ``-o`` and ``--exit-style``: what is written where, and what the exit code says of it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from kvcanary.record.journal import load
from kvcanary.report.files import is_stream
from kvcanary.report.formats import FORMATS, PRINTED
from tests.cli.command import COMMAND, environment, kvcanary
from tests.record.test_journal import write
from tests.report.scenes import failing, inconclusive, passing


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a record of each verdict."""
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "pass.jsonl", passing())
    write(folder / "fail.jsonl", failing())
    write(folder / "inconclusive.jsonl", inconclusive())
    return folder


@pytest.mark.parametrize("name", ["sarif", "github"])
def test_what_is_printed_is_what_is_rendered(name: str, runs: Path, tmp_path: Path) -> None:
    record = runs / "fail.jsonl"
    ended = kvcanary(tmp_path, "report", str(record), "-o", name)
    assert (ended.code, ended.err) == (1, "")
    assert ended.out == FORMATS[name].render(load(record))


def test_every_file_is_written_as_printed(runs: Path, tmp_path: Path) -> None:
    record = runs / "fail.jsonl"
    named = {name: tmp_path / f"report{FORMATS[name].suffix}" for name in PRINTED if name in FILES}
    wanted = [
        w for name, path in named.items() for w in ("--report", f"{name}={path.with_name(name)}")
    ]
    ended = kvcanary(tmp_path, "report", str(record), *wanted)
    assert (ended.code, ended.err) == (1, "")
    for name in named:
        assert (tmp_path / name).read_text() == FORMATS[name].render(load(record)), name


FILES = [f.name for f in FORMATS.values() if f.place == "FILE"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (("jnuit=x",), "There is no format `jnuit`; did you mean `junit`?"),
        (("junit",), "asked for as junit=FILE"),
        (("junit=",), "asked for as junit=FILE"),
        (("=x",), "There is no format ``"),
        (("junit=/nowhere/x.xml",), "is its folder there?"),
        (("junit=.",), "cannot be a file"),
        (("junit=same", "json=./same"), "`junit` and `json` would both be written to ./same"),
        (("json=link/x", "junit=folder/x"), "would both be written to"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_sent(
    wanted: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    ended = subprocess.run(
        [*COMMAND, "check", "lab:healthy", *(w for report in wanted for w in ("--report", report))],
        cwd=tmp_path,
        env=environment(tmp_path, {"PYTHONPATH": str(Path.cwd())}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(("record", "code"), [("pass", 2), ("fail", 1), ("inconclusive", 3)])
def test_one_report_that_cannot_be_written_keeps_no_other_from_it(
    record: str, code: int, runs: Path, tmp_path: Path
) -> None:
    """Never 0 then: somebody waits for that file."""
    path = runs / f"{record}.jsonl"
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    before = path.read_bytes()
    ended = kvcanary(
        tmp_path,
        *("report", str(path), "--report", f"nagios={full}", "--report", f"json={path}"),
        *("--report", f"junit={tmp_path / 'junit.xml'}"),
    )
    assert ended.code == code
    assert f"{full} cannot be written to: No space left on device." in ended.err
    assert "would replace the record itself" in ended.err
    assert "Traceback" not in ended.err
    assert path.read_bytes() == before
    assert "<testsuite" in (tmp_path / "junit.xml").read_text()


def test_a_report_goes_to_a_stream_as_it_is(runs: Path, tmp_path: Path) -> None:
    """A rename would put a file in the place of ``/dev/stdout``, or of a pipe somebody reads."""
    record, pipe, out = runs / "pass.jsonl", tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    out.symlink_to("/dev/stdout")  # as root the device itself would be lost with a wrong rename
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    try:
        ended = kvcanary(
            tmp_path,
            *("report", str(record), "--report", f"nagios={pipe}", "--report", f"junit={out}"),
        )
        assert pipe.is_fifo()
        assert out.is_symlink()
        line, _ = reader.communicate(timeout=60)
    finally:
        reader.kill()
        reader.wait()
    assert ended.code == 0
    assert ended.out.startswith("<testsuites")
    assert line == FORMATS["nagios"].render(load(record))


def test_a_device_is_no_file_whatever_it_stands_for(tmp_path: Path) -> None:
    """``/dev/stdout`` is a file where standard output goes to one."""
    assert is_stream(Path("/dev/stdout"))
    assert is_stream(Path("/dev/full"))
    (tmp_path / "file").write_text("x")
    assert not is_stream(tmp_path / "file")
    assert not is_stream(tmp_path / "new")


@pytest.mark.parametrize(
    ("record", "code", "state"),
    [("pass", 0, "OK"), ("fail", 2, "CRITICAL"), ("inconclusive", 1, "WARNING")],
)
def test_nagios_gets_its_code_and_one_line(
    record: str, code: int, state: str, runs: Path, tmp_path: Path
) -> None:
    ended = kvcanary(tmp_path, "report", str(runs / f"{record}.jsonl"), "--exit-style", "nagios")
    assert (ended.code, ended.err) == (code, "")
    assert ended.out.startswith(f"KVCANARY {state} - ")
    assert ended.out.count("\n") == 1
    told = kvcanary(
        tmp_path, "report", str(runs / f"{record}.jsonl"), "--exit-style=nagios", "-o", "json"
    )
    assert told.code == code, "the output format never changes it"
    json.loads(told.out)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "/nowhere", "--exit-style", "nagios"),
        ("capacity", "--exit-style", "nagios"),
        ("check", "http://127.0.0.1:1/v1", "--model", "m", "--exit-style", "nagios"),
        ("chekc", "--exit-style", "nagios"),
    ],
)
def test_what_could_not_run_is_unknown_to_nagios(words: tuple[str, ...], tmp_path: Path) -> None:
    """On standard output, too: it reads no other. kvcanary's own 2 would mean CRITICAL there."""
    ended = kvcanary(tmp_path, *words)
    assert ended.code == 3
    assert ended.out.startswith("KVCANARY UNKNOWN - ")
    assert ended.out.count("\n") == 1
    assert ended.err


def test_github_gets_annotations_beside_what_is_printed(runs: Path, tmp_path: Path) -> None:
    """Standard output stays what was asked for: the runner reads both streams."""
    record, summary = runs / "fail.jsonl", tmp_path / "summary.md"
    ended = kvcanary(
        tmp_path,
        *("report", str(record), "--report", "github", "-o", "json"),
        extra={"GITHUB_STEP_SUMMARY": str(summary)},
    )
    assert ended.code == 1
    json.loads(ended.out)
    assert ended.err == FORMATS["github"].render(load(record))
    assert summary.read_text().startswith("## kvcanary: FAIL\n")


def test_a_summary_that_cannot_be_written_is_never_a_pass(runs: Path, tmp_path: Path) -> None:
    ended = kvcanary(
        tmp_path,
        *("report", str(runs / "pass.jsonl"), "--report", "github"),
        extra={"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "summary.md")},
    )
    assert ended.code == 2
    assert "summary.md cannot be written to" in ended.err

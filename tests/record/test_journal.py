"""The journal: what was appended is what is read, whatever happened in between."""

import json
import os
import stat
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.errors import ConfigError
from kvcanary.record.journal import Journal, load
from kvcanary.record.run import HighWater, RunRecord
from kvcanary.record.series import Series
from kvcanary.verdict.claims import ClaimName
from kvcanary.verdict.judge import judge
from tests.builders import SCALE, finding, foreign, healthy, info, readers, sound


def write(path: Path, record: RunRecord, *, complete: bool = True) -> Journal:
    with Journal(path) as journal:
        for kind in ("info", "facts", "topology", "high_water", "scale", "stopped"):
            value = getattr(record, kind)
            if value is not None:
                journal.append(kind, value)
        for exchange in record.exchanges:
            journal.append("exchange", exchange)
        for simulation in record.simulations:
            journal.append("simulation", simulation)
        for series in record.series:
            journal.append("series", series)
        for window in record.windows:
            journal.append("window", window)
        for found in record.findings:
            journal.append("finding", found)
        if record.verdict:
            journal.append("verdict", record.verdict)
        if complete:
            journal.complete()
    return journal


def full() -> RunRecord:
    run = healthy(
        high_water=HighWater(tokens=5, how="measured"),
        findings=(finding(),),
        series=(
            Series(worker="P1", source="test"),
            Series(worker="D1", source="test", at_seconds=(0.5, 1), used_tokens=(None, 7)),
        ),
    )
    return run.model_copy(update={"verdict": judge(run, tuple(ClaimName)).verdict})


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "run.jsonl"
    journal = write(path, full())
    assert load(path) == journal.record == full()
    assert journal.written_path == path
    assert journal.error is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_it_is_on_disk_line_by_line_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    partial = tmp_path / "run.jsonl.partial"
    with Journal(path) as journal:
        journal.append("info", info())
        assert load(partial) == RunRecord(info=info())
        assert stat.S_IMODE(partial.stat().st_mode) == 0o600
        for n, exchange in enumerate(readers(1)):
            journal.append("exchange", exchange)
            assert len(load(partial).exchanges) == n + 1
    assert not path.exists()
    assert journal.written_path == partial


@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_a_file_cut_anywhere_is_a_shorter_record_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "run.jsonl"
    write(path, full())
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    if cut < first - 1:
        with pytest.raises(ConfigError):
            load(path)
        return
    record = load(path)
    assert record.info == full().info
    assert full().exchanges[: len(record.exchanges)] == record.exchanges
    if cut < len(whole) - 1:
        assert record.verdict is None


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_the_mode_is_tight_even_over_an_older_file(mode: int, tmp_path: Path) -> None:
    partial = tmp_path / "run.jsonl.partial"
    partial.write_text("older")
    partial.chmod(mode)
    write(tmp_path / "run.jsonl", full(), complete=False)
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600
    assert load(partial) == full()


def test_a_symlink_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run.jsonl.partial").symlink_to(victim)
    with pytest.raises(ConfigError, match=r"cannot be written: .*--record"):
        Journal(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl.partial").unlink()
    (tmp_path / "run.jsonl").symlink_to(victim)
    write(tmp_path / "run.jsonl", full())
    assert victim.read_text() == "precious"
    assert load(tmp_path / "run.jsonl") == full()


def test_places_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")
    for path in (tmp_path, Path("/dev/full"), Path("/dev/null"), tmp_path / "fifo"):
        with pytest.raises(ConfigError, match="not a file"):
            Journal(path)
    with pytest.raises(ConfigError, match="cannot be written"):
        Journal(tmp_path / "file" / "run.jsonl")


class Full:
    """A file on a full disk."""

    def __init__(self, real: IO[str]) -> None:
        self.real = real

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        self.real.close()
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_noted_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "run.jsonl") as journal:
        journal.append("info", info())
        monkeypatch.setattr(journal, "_file", Full(journal._file))
        for exchange in readers(1):
            journal.append("exchange", exchange)
        journal.append("scale", SCALE)
        journal.complete()
    assert journal.error == "No space left on device"
    assert len(journal.record.exchanges) == 3, "what is judged is what happened"
    assert journal.written_path == tmp_path / "run.jsonl.partial"
    assert load(journal.written_path) == RunRecord(info=info())


def line(kind: object, value: object) -> str:
    return json.dumps({"kind": kind, "value": value})


INFO = line("info", info().model_dump(mode="json"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not begin with the run"),
        ("\n\n", "not a line"),
        ("hello", "not a line"),
        ("[1]\n[2]\n", "not a line"),
        (line("info", {"schema_version": 2}), "schema version 2; this kvcanary reads 1"),
        (line("info", {"schema_version": "1"}), "schema version"),
        (line("info", {"schema_version": 1}), "not a valid run record: info"),
        (line("info", None), "does not begin with the run"),
        (line("scale", 1), "does not begin with the run"),
        (f"{INFO}\n{line('scale', 'x')}\n{INFO}", "not a valid run record: scale"),
        (f"{INFO}\n{line('surprise', 1)}", "surprise"),
        (f"{INFO}\n{line('exchanges', 1)}\n{line('exchange', 1)}", "exchanges"),
        (f"{INFO}\n{line(['exchange'], 1)}", "exchange"),
        (f"{INFO}\n{line('exchange', 5)}\n{INFO}", "exchanges.0"),
        (f"{INFO}\ncut\n{INFO}", ":2: not a line"),
        (f"{INFO}\n" + "[" * 100_000 + f"\n{INFO}", ":2: not a line"),
        ('{"kind": "info", "value": ' + "[" * 100_000, "not a line"),
    ],
)
def test_what_is_no_record_is_said_to_be_none(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_what_is_not_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(ConfigError, match="No such file"):
        load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not text"):
        load(path)


@given(st.binary(max_size=300))
@settings(deadline=None, derandomize=True)
def test_any_bytes_are_a_record_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(INFO.encode() + b"\n" + data)
    said = str(path)
    try:
        load(path)
    except ConfigError as error:
        said = str(error)
    assert str(path) in said


def test_the_record_holds_no_field_for_server_text() -> None:
    """A guard for whoever adds one: every text field of an exchange is ours or from a fixed list."""
    free = {"name", "probe", "group", "api", "outcome", "reason", "finish_reason"}
    texts = {
        name
        for name, field in type(readers(1)[0]).model_fields.items()
        if field.annotation in (str, str | None)
    }
    assert texts <= free
    assert foreign().model_dump().keys() == {
        "form", "request", "tenant", "run", "at_tokens", "extent", "whole", "altered",
    }  # fmt: skip


def test_facts_round_trip() -> None:
    facts = sound()
    assert type(facts).model_validate_json(facts.model_dump_json()) == facts

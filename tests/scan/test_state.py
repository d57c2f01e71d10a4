"""A scan goes on where the last one ended: logs that grow, are rotated, cut, or a scan that was killed."""

import gzip
from pathlib import Path

import pytest

from kvcanary.errors import ConfigError, UsageError
from kvcanary.scan import ranges, scanner
from kvcanary.scan.ranges import Task
from kvcanary.scan.records import Fields
from kvcanary.scan.records import Path as FieldPath
from kvcanary.scan.scanner import Seen, scan
from kvcanary.scan.sources import sources
from kvcanary.scan.state import Places
from tests.canary.scene import KEY
from tests.scan.stored import ANOTHER, CODE, QUICK

RECORDS = Task(KEY, None, Fields((FieldPath.of("a"),), None), 0)


def scanned(folder: Path, *names: str, task: Task = QUICK) -> list[tuple[str, str, int]]:
    """Markers that a scan of these files tells: each with its file's name and its place."""
    return told(one_scan(folder, *names, task=task))


def one_scan(folder: Path, *names: str, task: Task = QUICK) -> Seen:
    places = Places.load(folder / "state", KEY, "x")
    found = list(sources(str(folder / name) for name in names))
    return scan(task, found, places, 1, lambda _name, _count: None)


def told(seen: Seen) -> list[tuple[str, str, int]]:
    return [(Path(s.file).name, s.marker, s.offset) for s in seen.tally.sightings]


def append(path: Path, content: str) -> None:
    with path.open("a") as file:
        file.write(content)


def test_what_was_told_is_not_told_again_and_what_is_new_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"a {CODE}\n")
    assert scanned(tmp_path, "log") == [("log", CODE, 2)]
    assert scanned(tmp_path, "log") == []
    append(log, f"{ANOTHER}\n")
    assert scanned(tmp_path, "log") == [("log", ANOTHER, 26)]


@pytest.mark.parametrize("cut", range(1, len(CODE)))
def test_a_marker_that_was_half_written_is_found_when_it_is_whole(tmp_path: Path, cut: int) -> None:
    (tmp_path / "log").write_text("so: " + CODE[:cut])
    assert scanned(tmp_path, "log") == []
    append(tmp_path / "log", CODE[cut:])
    assert scanned(tmp_path, "log") == [("log", CODE, 4)]


def test_a_rotated_log_is_known_by_its_new_name_and_the_new_one_is_new(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{CODE}\n")
    assert scanned(tmp_path, "log") == [("log", CODE, 0)]
    append(tmp_path / "log", f"{ANOTHER}\n")
    (tmp_path / "log").rename(tmp_path / "log.1")
    (tmp_path / "log").write_text(f"{CODE}\n")
    assert scanned(tmp_path, "log", "log.1") == [("log", CODE, 0), ("log.1", ANOTHER, 24)]


@pytest.mark.parametrize(
    "content", [f"{ANOTHER}", f"{ANOTHER} {'x' * 500}"], ids=["shorter", "longer"]
)
def test_a_log_that_was_cut_and_written_anew_is_scanned_from_its_beginning(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "log").write_text("." * 300)
    assert scanned(tmp_path, "log") == []
    (tmp_path / "log").write_text(content)  # the same inode
    seen = one_scan(tmp_path, "log")
    assert told(seen) == [("log", ANOTHER, 0)]
    assert seen.files[0].note == "it was cut or written anew, and is scanned from its beginning"


def test_an_unfinished_record_is_left_for_the_next_scan(tmp_path: Path) -> None:
    log = tmp_path / "log"
    begun = f'{{"prompt": "{CODE}", "a": "{ANOTHER[:5]}'
    log.write_text('{"a": "x"}\n' + begun)
    seen = one_scan(tmp_path, "log", task=RECORDS)
    assert told(seen) == [], "the prompt is no field that was asked for"
    assert (
        seen.files[0].note
        == f"its last {len(begun)} bytes are an unfinished record, left for the next scan"
    )
    append(log, ANOTHER[5:] + '"}\n')
    assert scanned(tmp_path, "log", task=RECORDS) == [("log", ANOTHER, 11)]


def test_a_compressed_file_is_read_again_only_if_it_has_grown(tmp_path: Path) -> None:
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(f"a {CODE}\n".encode()))
    assert scanned(tmp_path, "log.gz") == [("log.gz", CODE, 2)]
    assert one_scan(tmp_path, "log.gz").tally.counts.text_bytes == 0
    with log.open("ab") as file:
        file.write(gzip.compress(f"b {ANOTHER}\n".encode()))
    assert scanned(tmp_path, "log.gz") == [("log.gz", ANOTHER, 28)]


def test_records_of_a_compressed_file_that_has_grown_are_told_once(tmp_path: Path) -> None:
    log = tmp_path / "log.gz"
    first = f'{{"a": "{CODE}"}}\n'
    log.write_bytes(gzip.compress(first.encode()))
    assert scanned(tmp_path, "log.gz", task=RECORDS) == [("log.gz", CODE, 0)]
    with log.open("ab") as file:
        file.write(gzip.compress(f'{{"a": "{ANOTHER}"}}\n'.encode()))
    assert scanned(tmp_path, "log.gz", task=RECORDS) == [("log.gz", ANOTHER, len(first))]


class Killed(BaseException):
    """Nothing is done about it, as about SIGKILL."""


@pytest.mark.parametrize("after", range(1, 12))
def test_a_scan_that_was_killed_tells_everything_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(scanner, "SAVE_SECONDS", -1.0)
    monkeypatch.setattr(ranges, "QUICK_RANGE_BYTES", 3_000)
    (tmp_path / "a").write_text(f"{CODE} {'.' * 5_000} {ANOTHER} {'.' * 3_000} {CODE}")
    (tmp_path / "b").write_text(f"{'.' * 4_000} {ANOTHER}")
    names = ("a", "b")
    everything = scanned(tmp_path, *names)
    (tmp_path / "state").unlink()
    steps = iter(range(after))

    def advance(_name: str, _count: int) -> None:
        if next(steps, None) is None:
            raise Killed

    found = list(sources(str(tmp_path / name) for name in names))
    try:
        scan(QUICK, found, Places.load(tmp_path / "state", KEY, "x"), 1, advance)
    except Killed:
        assert scanned(tmp_path, *names) == everything
    else:
        assert scanned(tmp_path, *names) == []


def test_the_state_is_nobody_elses_and_holds_no_text(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"a customer's secret {CODE}\n")
    scanned(tmp_path, "log")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
    assert "secret" not in (tmp_path / "state").read_text()


def test_the_state_of_another_search_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x")
    scanned(tmp_path, "log")
    with pytest.raises(UsageError, match="other fields or other records"):
        Places.load(tmp_path / "state", KEY, "y")


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\0", '{"version": 2, "looked_for": "x"}'])
def test_what_is_no_state_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").write_text(content)
    with pytest.raises(ConfigError, match="Name another file"):
        Places.load(tmp_path / "state", KEY, "x")

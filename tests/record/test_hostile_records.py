"""A record may come from anywhere: whatever stands in it, it is shown and judged, or said to be none."""

import io
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from kvcanary.errors import ConfigError
from kvcanary.record.journal import PARTIAL, load
from kvcanary.report.formats import FORMATS, PRINTED
from kvcanary.report.summary import print_summary
from kvcanary.verdict.judge import judge
from tests.cli.command import kvcanary
from tests.record.test_journal import full, write

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**17, 10**400, 1e308, float("nan"), float("inf"), -5.5),
    *("", "\ud800", "\x1b[31m", "x" * 5_000, "[bold]", "\u202e", "2026-01-01", "F1", "a/b"),
    *([], {}, [1], {"a": 1}),
)


def places(value: object, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inner:
        yield from places(part, (*before, key))
    if before:
        yield before


def spoilt(line: str, rng: random.Random) -> str:
    """With one value replaced, or left out."""
    entry = json.loads(line)
    *way, last = rng.choice(list(places(entry)))
    part = entry
    for key in way:
        part = part[key]
    if isinstance(part, dict) and rng.random() < 0.2:
        del part[last]
    else:
        part[last] = rng.choice(HOSTILE)
    return json.dumps(entry)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), times=st.integers(1, 4))
def test_a_spoilt_record_is_shown_and_judged_or_said_to_be_none(
    seed: int, times: int, tmp_path: Path
) -> None:
    rng, path = random.Random(seed), tmp_path / "run.jsonl"
    write(path, full())
    lines = path.read_text().splitlines()
    for _ in range(times):
        at = rng.randrange(len(lines))
        lines[at] = spoilt(lines[at], rng)
    path.write_text("\n".join(lines) + "\n")
    try:
        record = load(path)
    except ConfigError:
        return
    shown = io.StringIO()
    print_summary(Console(file=shown, width=80), record, str(path))
    assert "\x1b" not in shown.getvalue()
    for name in PRINTED:
        FORMATS[name].render(record).encode()
    judge(record, record.info.requires)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 24 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24k", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root can make a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_costs_the_record_and_not_the_verdict(
    small_disk: Path, tmp_path: Path
) -> None:
    path, junit_file = small_disk / "run.jsonl", small_disk / "junit.xml"
    ended = kvcanary(
        tmp_path,
        *("check", "lab:healthy?context=4096", "--suite", "smoke", "--record", str(path)),
        *("--report", f"junit={junit_file}"),
    )
    assert "Claims" in ended.out, "the verdict is told"
    assert "could not be written to its end: No space left on device" in ended.said
    assert f"{junit_file} cannot be written" in ended.said
    assert ended.code == 2, "a report that was asked for is missing"
    assert "Traceback" not in ended.err
    left = load(path.with_name(path.name + PARTIAL))
    assert left.exchanges
    assert left.verdict is None
    assert not list(small_disk.glob(".junit*")), "no draft is left behind"

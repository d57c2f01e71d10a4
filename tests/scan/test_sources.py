"""Files of every kind: what is read, and what is told of those that cannot be."""

import gzip
import os
import sys
from pathlib import Path

import pytest

from kvcanary.scan.ranges import Range, steps
from kvcanary.scan.sources import Form, Source, Unread, sources
from kvcanary.scan.tally import Tally
from tests.scan.stored import ANOTHER, CODE, QUICK, quick

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"." * 300_000 + CODE.encode() + b"." * 300_000


def checked(content: bytes) -> bytes:
    """As the command-line tool does it: with a checksum."""
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


def told(source: Source | Unread) -> tuple[list[tuple[str, int]], str | None]:
    """Markers with their places, and the error if there was one."""
    assert isinstance(source, Source)
    pieces = list(
        steps(
            QUICK, quick(), Range(source, 0, None if source.form is not Form.PLAIN else source.size)
        )
    )
    tally = sum((p.tally for p in pieces), Tally())
    return [(s.marker, s.offset) for s in tally.sightings], pieces[-1].error


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (TEXT, Form.PLAIN),
        (gzip.compress(TEXT), Form.GZIP),
        (gzip.compress(TEXT[:300_009]) + gzip.compress(TEXT[300_009:]), Form.GZIP),
        (zstd.compress(TEXT), Form.ZSTD),
        (zstd.compress(TEXT[:300_009]) + zstd.compress(TEXT[300_009:]), Form.ZSTD),
    ],
    ids=["plain", "gzip", "gzip of two members", "zstd", "zstd of two frames"],
)
def test_the_place_of_a_marker_is_that_in_the_text(
    tmp_path: Path, content: bytes, form: Form
) -> None:
    """What it is goes by the first bytes, not by the name."""
    (tmp_path / "log").write_bytes(content)
    (source,) = sources([str(tmp_path / "log")])
    assert isinstance(source, Source)
    assert source.form is form
    assert told(source) == ([(CODE, 300_000)], None)


@pytest.mark.parametrize("compress", [gzip.compress, checked], ids=["gzip", "zstd"])
def test_a_compressed_file_that_is_cut_or_damaged_tells_what_it_held_until_there(
    tmp_path: Path, compress: object
) -> None:
    assert callable(compress)
    noise = os.urandom(600_000)
    whole = compress(CODE.encode() + noise)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "damaged").write_bytes(whole[:-9] + bytes(b ^ 0x55 for b in whole[-9:]))
    cut, damaged = sources([str(tmp_path / "cut"), str(tmp_path / "damaged")])
    assert told(cut)[1] == "the compressed data ends too early"
    assert told(damaged)[1] is not None
    assert told(cut)[0] == [(CODE, 0)]


def test_folders_patterns_and_files_give_each_file_once(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "deep/er/c.log", "other.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    os.link(tmp_path / "a.log", tmp_path / "z-link.log")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    arguments = [str(tmp_path / "**" / "*.log"), str(tmp_path), str(tmp_path / "a.log")]
    names = [Path(s.name).name for s in sources(arguments)]
    assert sorted(names) == ["a.log", "b.log", "c.log", "other.txt"]


def test_a_file_with_the_signs_of_a_pattern_in_its_name_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "log[1].txt").write_text("x")
    (source,) = sources([str(tmp_path / "log[1].txt")])
    assert isinstance(source, Source)


def test_what_cannot_be_read_is_named_and_the_rest_still_is(tmp_path: Path) -> None:
    (tmp_path / "good").write_text(ANOTHER)
    (tmp_path / "empty folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    names = ["missing", "none*", "empty folder", "dangling", "good"]
    found = list(sources(str(tmp_path / name) for name in names))
    why = [s.why for s in found if isinstance(s, Unread)]
    missing = "No such file or directory"
    assert why == [missing, "nothing has such a name", "there is no file in it", missing]
    assert told(found[-1])[0] == [(ANOTHER, 0)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    (unread,) = sources([str(tmp_path / "secret")])
    assert isinstance(unread, Unread)
    assert unread.why == "Permission denied"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that fails when it is read")
def test_a_file_that_fails_when_it_is_read_is_named() -> None:
    (unread,) = sources(["/proc/self/mem"])
    assert isinstance(unread, Unread)
    assert unread.why == "Input/output error"


def test_a_pipe_in_a_folder_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "log").write_text("x")
    (source,) = sources([str(tmp_path)])
    assert isinstance(source, Source)
    (named,) = sources([str(tmp_path / "pipe")])
    assert isinstance(named, Source)
    assert named.form is Form.STREAM


def test_a_name_is_shown_without_what_a_terminal_would_obey(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\x1b[2J"
    Path(os.fsdecode(name)).write_text("x")
    (source,) = sources([os.fsdecode(name)])
    assert source.name.endswith("/\\xff\\x1b[2J")
    source.name.encode()

"""Files are written whole or not at all, and what must stay stays."""

import stat
from pathlib import Path

import pytest

from kvcanary.errors import ConfigError
from kvcanary.report.files import write_atomically


def test_a_file_is_replaced_only_where_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "one", 0o600, replace=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_atomically(path, "two", replace=False)
    assert path.read_text() == "one"
    write_atomically(path, "three")
    assert path.read_text() == "three"
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        write_atomically(tmp_path / "nowhere" / "file", "one")

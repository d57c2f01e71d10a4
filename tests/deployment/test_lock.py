"""Two runs against one deployment on one host exclude each other."""

from pathlib import Path

import pytest

from kvcanary.deployment.lock import only_run
from kvcanary.errors import ConfigError, UsageError


def test_the_second_run_is_told_of_the_first(tmp_path: Path) -> None:
    with only_run("http://a/v1", tmp_path / "locks"):
        with (
            pytest.raises(
                UsageError, match="Another kvcanary run on this host is testing http://a/v1"
            ),
            only_run("http://a/v1", tmp_path / "locks"),
        ):
            pass
        with only_run("http://b/v1", tmp_path / "locks"):
            pass
    with only_run("http://a/v1", tmp_path / "locks"):
        pass


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), TimeoutError(), UsageError("x")]
)
def test_a_failure_inside_the_run_is_not_blamed_on_the_lock(
    error: Exception, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as caught, only_run("http://a/v1", tmp_path):
        raise error
    assert caught.value is error
    with only_run("http://a/v1", tmp_path):
        pass


def test_a_place_that_cannot_hold_a_lock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"), only_run("u", tmp_path / "file" / "x"):
        pass

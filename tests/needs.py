"""What a test needs of the machine: without it the test is skipped, and in CI it fails."""

import os
import shutil
from typing import NoReturn

import pytest

IN_CI = any(os.environ.get(name) for name in ("CI", "KVCANARY_CI"))


def program(name: str, how_to_get_it: str) -> str:
    """The path of a program."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed: {how_to_get_it}")
    return path


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it in CI, where nothing may be left out unseen."""
    if IN_CI:
        pytest.fail(f"CI leaves nothing out: {reason}")
    pytest.skip(reason)

"""Real engines: collected only where ``make test-engines`` says in which folder they are."""

import os
from pathlib import Path

import pytest

from tests.engines.real.environments import FOLDER, Environments

if FOLDER not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def environments() -> Environments:
    return Environments(Path(os.environ[FOLDER]).resolve())

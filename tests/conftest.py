"""What all tests share.

Property tests find the same examples everywhere, and none of them is a race against a clock.
"""

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("kvcanary", deadline=None, derandomize=True)
settings.load_profile("kvcanary")

# Hundreds of tests start the command: without its bytecode each of them compiles all of it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port on which nothing listens, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are cores: a third of the time tests wait, for a lab's clock or a process."""
    return (os.cpu_count() or 1) * 3 // 2

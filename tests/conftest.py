"""What all tests share.

Property tests find the same examples everywhere, and none of them is a race against a clock.
"""

import os
import socket

import pytest
from hypothesis import settings

settings.register_profile("kvcanary", deadline=None, derandomize=True)
settings.load_profile("kvcanary")

# Hundreds of tests start the command: without its bytecode each of them compiles all of it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture
def unused_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

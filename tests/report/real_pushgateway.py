"""A real Prometheus pushgateway."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests import needs
from tests.telemetry.real_prometheus import free_port

LISTENS = "Listening on"


@contextmanager
def pushgateway() -> Iterator[str]:
    """Its base URL, once it listens. It remembers nothing: Debian's keeps a file otherwise."""
    path = needs.program("prometheus-pushgateway", "python3 tools/install_test_servers.py")
    port = free_port()
    process = subprocess.Popen(
        [path, f"--web.listen-address=127.0.0.1:{port}", "--persistence.file="],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr
            said = []
            for line in process.stderr:
                said.append(line)
                if LISTENS in line or "TLS is disabled" in line:
                    break
            else:
                raise AssertionError("".join(said))
            threading.Thread(target=process.stderr.read, daemon=True).start()  # or it would block
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()

"""A real Prometheus server that scrapes what it is told, every second."""

import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvcanary.deployment.target import PrometheusServer
from tests import needs
from tests.instrument.served_lab import served

GUARD_SECONDS = 60
READY = "Server is ready to receive web requests"


@dataclass(frozen=True)
class Scraped:
    """A target: ``host:port``, and labels that its series get."""

    job: str
    address: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Scene:
    """A Prometheus server that scrapes the workers of a lab, and a DCGM exporter."""

    url: str
    front: str
    workers: Mapping[str, str]
    """Role by URL."""

    def server(self, job: str = "llm", role_label: str | None = "role") -> PrometheusServer:
        """How it is reached, and whose series are meant."""
        return PrometheusServer(self.url, (("job", job),), role_label)


@contextmanager
def scene(folder: Path, gpus: str) -> Iterator[Scene]:
    """Two prefill and two decode workers, one target that is down, and an exporter of GPUs."""
    with served(folder, "2x2", "--context", "4096") as front, exporter(gpus) as dcgm:
        listing = f"{front.removesuffix('/v1')}/workers"
        with urllib.request.urlopen(listing, timeout=GUARD_SECONDS) as answer:
            workers = {w["url"]: w["worker_type"] for w in json.load(answer)["workers"]}
        targets = [
            Scraped("llm", urlsplit(url).netloc, {"role": role, "model_name": "theirs"})
            for url, role in workers.items()
        ]
        down = Scraped("lame", f"127.0.0.1:{free_port()}", {"role": "decode"})
        alive = Scraped("lame", targets[0].address, {"role": "somebody"})
        gpu = Scraped("gpu", dcgm, {})
        with prometheus(folder, *targets, down, alive, gpu) as url:
            yield Scene(url, front, workers)


@contextmanager
def prometheus(folder: Path, *targets: Scraped) -> Iterator[str]:
    """Its base URL, once it has scraped every target."""
    path = needs.program("prometheus", "python3 tools/install_test_servers.py")
    jobs: dict[str, list[dict[str, object]]] = {}
    for target in targets:
        entry: dict[str, object] = {"targets": [target.address], "labels": dict(target.labels)}
        jobs.setdefault(target.job, []).append(entry)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": n, "static_configs": s} for n, s in jobs.items()],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    process = subprocess.Popen(
        [
            path,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr
            said = []
            for line in process.stderr:
                said.append(line)
                if READY in line:
                    break
            else:
                raise AssertionError("".join(said))
            threading.Thread(target=process.stderr.read, daemon=True).start()  # or it would block
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, len(targets))
            yield url
        finally:
            process.terminate()


def _wait_for(url: str, targets: int) -> None:
    until = time.monotonic() + GUARD_SECONDS
    while len(query(url, "up")) < targets:
        assert time.monotonic() < until, "not every target was scraped"
        time.sleep(0.05)


def query(url: str, promql: str) -> list[Any]:
    """An instant query, past kvcanary."""
    with urllib.request.urlopen(
        f"{url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}", timeout=GUARD_SECONDS
    ) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
        return found


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def exporter(text: str) -> Iterator[str]:
    """``host:port`` of a server whose ``/metrics`` says this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A server that gives every prompt the same answer, for commands that run as processes of their own."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.cli.command import GUARD_SECONDS


@dataclass(frozen=True)
class Parrot:
    """Its base URL; set once it was asked; what the ``Authorization`` of each prompt was."""

    url: str
    asked: threading.Event = field(default_factory=threading.Event)
    keys: list[str] = field(default_factory=list)


@contextmanager
def serving(status: int, text: str) -> Iterator[Parrot]:
    """It lists the model ``tiny``, and answers prompts with ``text``; with status 0 it never answers."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            listed = {"object": "list", "data": [{"id": "tiny", "object": "model"}]}
            self.tell(200 if self.path == "/v1/models" else 404, json.dumps(listed))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            parrot.keys.append(self.headers.get("authorization", ""))
            parrot.asked.set()
            if status == 0:
                ended.wait(GUARD_SECONDS)
                return
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.tell(status, json.dumps({"id": "x", "model": "tiny", "choices": [choice]}))

        def tell(self, code: int, body: str) -> None:
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    parrot = Parrot(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield parrot
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()

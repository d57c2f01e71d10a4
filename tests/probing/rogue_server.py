"""A loopback server that does what it is told, on real sockets: the test double of a deployment.

It speaks as much HTTP/1.1 as the client needs and nothing keeps it from being rude.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
PAYLOADS = Path(__file__).parent / "payloads"


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is."""
    value = json.loads(body)
    assert isinstance(value, dict)
    return value


@dataclass
class Call:
    """One request as it arrived, and the wire it came on."""

    method: str
    path: str
    headers: dict[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    body: bytes = b""

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON body."""
        return json_object(self.body)

    async def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)  # drain gives nobody else a turn while the buffer has room

    async def answer(
        self,
        status: int = 200,
        body: bytes = b"",
        content_type: str = "application/json",
        extra: str = "",
    ) -> None:
        """Send a whole response of known length."""
        head = f"HTTP/1.1 {status} Status\r\nContent-Type: {content_type}\r\n{extra}"
        await self.say(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def start_stream(self, content_type: str = "text/event-stream") -> None:
        """Begin a response whose end is the end of the connection."""
        await self.say(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n".encode()
        )

    async def start_chunked(self, content_type: str = "text/event-stream") -> None:
        """Begin a response in chunks; `chunk` sends one, an empty one ends it."""
        await self.say(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )

    async def chunk(self, data: bytes) -> None:
        """Send one chunk."""
        await self.say(b"%x\r\n%s\r\n" % (len(data), data))

    async def disconnected(self) -> None:
        """Wait until the client has gone."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            pass

    def hang_up(self, *, reset: bool = False) -> None:
        """Close the connection, or tear it down."""
        if reset:
            self.writer.transport.abort()
        else:
            self.writer.close()


Handler = Callable[[Call], Awaitable[None]]


@dataclass
class Rogue:
    """A running server: its base URL and the calls it has had."""

    base_url: str
    port: int
    calls: list[Call] = field(default_factory=list, repr=False)  # headers hold keys
    connections: int = 0


@asynccontextmanager
async def rogue_server(
    handler: Handler, *, read_body: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Rogue]:
    """Serve `handler` on loopback; several requests may come on one connection."""
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                call = await _read_call(reader, writer, read_body=read_body)
                rogue.calls.append(call)
                await handler(call)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rogue.connections += 1
        writers.add(writer)
        tasks.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    rogue = Rogue(f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1", port)
    try:
        yield rogue
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(w.wait_closed() for w in writers), return_exceptions=True)
        await server.wait_closed()
        for result in results:
            if isinstance(result, Exception):
                raise result


async def _read_call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, read_body: bool
) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    call = Call(method, path, headers, reader, writer)
    if read_body:
        call.body = await reader.readexactly(int(headers.get("content-length", "0")))
    return call


def sse(*events: object) -> bytes:
    """Events as an engine sends them; a string goes out as it is."""
    return b"".join(
        f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        for event in events
    )


def delta(content: str = "", finish: str | None = None, **other: object) -> dict[str, object]:
    """One chunk of a chat answer."""
    return {
        "id": "chatcmpl-1",
        "model": "tiny",
        "choices": [
            {"index": 0, "delta": {"content": content, **other}, "finish_reason": finish},
        ],
    }


def usage(prompt: int = 10, completion: int = 2, cached: int = 4) -> dict[str, object]:
    """The chunk with the counts."""
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


@dataclass(frozen=True)
class Capture:
    """One captured response."""

    stream: bool
    status: int
    content_type: str
    body: bytes


def captures(file: str) -> dict[str, Capture]:
    """The captures of a payload file by name; a name that comes twice gets ``_stream``."""
    found: dict[str, Capture] = {}
    for item in json.loads((PAYLOADS / file).read_text(encoding="utf-8"))["captures"]:
        name = item["name"]
        if name in found:
            name += "_stream"
        found[name] = Capture(
            item["stream"], item["status"], item["content_type"], item["body"].encode()
        )
    return found


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; anything left in the loop is an error of the test."""
    return asyncio.run(coroutine)

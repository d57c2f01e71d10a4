"""A small real HTTP proxy: forwards plain requests, tunnels TLS (CONNECT), and remembers what passed."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.probing.rogue_server import json_object


@dataclass(frozen=True)
class Passed:
    """One request that passed."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)  # they hold keys
    body: bytes = field(repr=False)

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON body."""
        return json_object(self.body)


@dataclass
class Proxied:
    """A running proxy. ``user_and_password``: asked for with 407 when not sent."""

    url: str
    passed: list[Passed] = field(default_factory=list)


@asynccontextmanager
async def proxy(user_and_password: str | None = None) -> AsyncIterator[Proxied]:
    """Serve on loopback: one request a connection, so that nothing has to be told apart."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await _pass_on(reader, writer, running.passed, user_and_password)
        writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    running = Proxied(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield running
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _pass_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    passed: list[Passed],
    user_and_password: str | None,
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.rstrip().split("\r\n")
    method, url, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if user_and_password:
        expected = base64.b64encode(user_and_password.encode()).decode()
        if headers.pop("proxy-authorization", "") != f"Basic {expected}":
            writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            return
    passed.append(Passed(method, url, headers, body))
    parts = urlsplit(url if "://" in url else f"//{url}")
    upstream, to_upstream = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            kept = [
                line for line in lines if not line.lower().startswith(("proxy-", "connection:"))
            ]
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            told = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""])
            to_upstream.write(told.encode("ascii") + body)
        # whoever ends first ends both
        ways = {
            asyncio.ensure_future(_copy(reader, to_upstream)),
            asyncio.ensure_future(_copy(upstream, writer)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    finally:
        to_upstream.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()

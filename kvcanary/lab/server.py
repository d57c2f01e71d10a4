"""One uvicorn server inside a loop that is not its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from kvcanary.errors import UsageError


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever owns the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 lets the system choose.

    Raises UsageError when the address cannot be had.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UsageError(
            f"cannot listen on {host} port {port}: {why}; choose another port, or 0 for any"
        ) from error


class HttpServer:
    """Serves an ASGI app on a socket that listens already, until `stop`."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Quiet(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="critical",
                access_log=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=2,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve. Connections made before uvicorn is ready wait in the backlog."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    async def stop(self) -> None:
        """Close idle connections, let the others end within two seconds."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._listener.close()

"""A small front door for a prefill and a decode worker: prefill with one token, then decode.

``python -m tests.engines.real.front_door --prefill URL --decode URL --port N [--storage FOLDER]``. What a worker
refuses comes back as it is. What lies in the storage of the KV connector for a while is removed.
"""

import argparse
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

HOP_HEADERS = frozenset({"host", "content-length", "connection", "transfer-encoding", "expect"})
STORED_SECONDS = 90.0
"""How long a prompt's KV is kept. Decode takes it at once."""


class FrontDoor:
    """Takes each request to prefill, and then to decode."""

    def __init__(self, prefill: str, decode: str, storage: Path | None) -> None:
        self._prefill, self._decode, self._storage = prefill, decode, storage
        self._client = httpx.AsyncClient(timeout=None, trust_env=False)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._from_decode),
                Route("/health", self._from_decode),
                Route("/workers", self._workers),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks, self._client:
            tasks.start_soon(self._sweep)
            yield
            tasks.cancel_scope.cancel()

    async def _complete(self, request: Request) -> Response:
        headers = {k: v for k, v in request.headers.items() if k not in HOP_HEADERS}
        body = await request.json()
        answers: list[httpx.Response] = []
        async with anyio.create_task_group() as tasks:

            async def prefill() -> None:
                url = f"{self._prefill}{request.url.path}"
                answers.append(await self._client.post(url, json=one_token(body), headers=headers))
                tasks.cancel_scope.cancel()

            tasks.start_soon(prefill)
            while (await request.receive())["type"] != "http.disconnect":
                pass  # a client that has gone ends its prefill
            tasks.cancel_scope.cancel()
        if not answers:
            return Response(status_code=499)
        if answers[0].is_error:
            return whole(answers[0])
        decoded = await self._client.send(
            self._client.build_request(
                "POST", f"{self._decode}{request.url.path}", json=body, headers=headers
            ),
            stream=True,
        )

        async def through() -> AsyncIterator[bytes]:
            try:
                async for piece in decoded.aiter_raw():
                    yield piece
            finally:
                await decoded.aclose()

        kind = decoded.headers.get("content-type", "application/json")
        return StreamingResponse(through(), decoded.status_code, media_type=kind)

    async def _from_decode(self, request: Request) -> Response:
        return whole(await self._client.get(f"{self._decode}{request.url.path}"))

    async def _workers(self, _: Request) -> Response:
        roles = (("prefill", self._prefill), ("decode", self._decode))
        return JSONResponse({"workers": [{"url": url, "worker_type": role} for role, url in roles]})

    async def _sweep(self) -> None:
        while self._storage:
            await anyio.sleep(STORED_SECONDS / 3)
            for folder in self._storage.iterdir():
                if folder.stat().st_mtime < time.time() - STORED_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)


def one_token(body: dict[str, object]) -> dict[str, object]:
    """The same prompt for prefill: its first token is thrown away."""
    kept = {k: v for k, v in body.items() if k not in ("stream_options", "max_completion_tokens")}
    return {**kept, "max_tokens": 1, "stream": False}


def whole(answer: httpx.Response) -> Response:
    kind = answer.headers.get("content-type", "application/json")
    return Response(answer.content, answer.status_code, media_type=kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefill", required=True)
    parser.add_argument("--decode", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--storage", type=Path)
    told = parser.parse_args()
    door = FrontDoor(told.prefill, told.decode, told.storage)
    uvicorn.run(door.app(), host="127.0.0.1", port=told.port, log_level="warning")


if __name__ == "__main__":
    main()

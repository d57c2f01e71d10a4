"""The HTTP edge: routes of the front door (router) and of the workers."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kvcanary.lab.chances import FaultKey
from kvcanary.lab.clock import Clock
from kvcanary.lab.deployment import Deployment
from kvcanary.lab.exchanges import BodyReader, FrontDoor, read_body, refused
from kvcanary.lab.gateway import Gateway, MaxBody, ProxyTimeout, ResponseCache, TokensPerMinute
from kvcanary.lab.limits import Refusal
from kvcanary.lab.mixups import OffByOne, WrongStream
from kvcanary.lab.sglang_info import (
    WorkerAddress,
    loads,
    model_info,
    models,
    router_workers,
    server_info,
    tokenized,
)
from kvcanary.lab.sglang_metrics import CONTENT_TYPE, WorkerCollector, exposition
from kvcanary.lab.sglang_requests import BadBodyError, parse_tokenize
from kvcanary.lab.worker import AnyWorker

_OPEN_PATHS: Final = ("/health", "/ready", "/metrics")


class KeyGuard:
    """Refuses what lacks the key, as SGLang's ``--api-key`` does: all but health and metrics."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] == "http" and not scope["path"].startswith(_OPEN_PATHS):
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                response = JSONResponse({"error": "Unauthorized"}, status_code=401)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _guard(api_key: str | None) -> list[Middleware]:
    return [] if api_key is None else [Middleware(KeyGuard, api_key=api_key)]


def _proxy(gateway: Gateway, clock: Clock) -> list[Middleware]:
    """What stands before the check of the key, outermost first."""
    layers = []
    if gateway.max_body_bytes is not None:
        layers.append(Middleware(MaxBody, max_bytes=gateway.max_body_bytes))
    if gateway.first_byte_seconds is not None:
        seconds = gateway.first_byte_seconds
        layers.append(Middleware(ProxyTimeout, seconds=seconds, clock=clock))
    return layers


def _api_gateway(deployment: Deployment) -> list[Middleware]:
    """What stands behind the check of the key: a cache, and what hands answers to callers."""
    chances, layers = deployment.chances, []
    if deployment.scenario.gateway.response_cache:
        layers.append(Middleware(ResponseCache, chances=chances))
    if chances.has(FaultKey.GATEWAY_OFF_BY_ONE):
        layers.append(Middleware(OffByOne, chances=chances))
    if chances.has(FaultKey.GATEWAY_CHUNK):
        layers.append(Middleware(WrongStream, chances=chances))
    return layers


def _answers(make: Callable[[], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(_: Request) -> Response:
        return JSONResponse(make())

    return endpoint


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("OK")


def router_app(
    deployment: Deployment,
    fallback: Deployment | None,
    addresses: tuple[WorkerAddress, ...],
    *,
    front_door_only: bool,
    api_key: str | None,
) -> Starlette:
    """The front door. With ``front_door_only`` it shows nothing of what stands behind it."""
    scenario = deployment.scenario
    gateway, clock = scenario.gateway, deployment.clock
    limit = gateway.tokens_per_minute
    budget = None if limit is None else TokensPerMinute(limit, clock)
    front = FrontDoor(deployment, fallback, BodyReader(deployment), budget)
    routes = [
        Route("/v1/chat/completions", partial(front.generate, chat=True), methods=["POST"]),
        Route("/v1/completions", partial(front.generate, chat=False), methods=["POST"]),
        Route("/v1/models", _answers(partial(models, scenario))),
        Route("/health", _healthy),
    ]
    if not front_door_only:
        count = len(addresses)
        router = {"router_manager": True, "routers_count": 1, "workers_count": count}
        routes += [
            Route("/workers", _answers(partial(router_workers, scenario, addresses))),
            Route("/get_server_info", _answers(lambda: router)),
        ]
    layers = [*_proxy(gateway, clock), *_guard(api_key), *_api_gateway(deployment)]
    return Starlette(routes=routes, middleware=layers)


def worker_app(deployment: Deployment, worker: AnyWorker, *, api_key: str | None) -> Starlette:
    """What a worker tells on a port of its own."""
    scenario = deployment.scenario
    collector = WorkerCollector(scenario, worker)

    async def metrics(_: Request) -> Response:
        return Response(exposition(collector), headers={"content-type": CONTENT_TYPE})

    async def tokenize(request: Request) -> Response:
        try:
            ids = parse_tokenize(await read_body(request), deployment.tokenizer)
        except BadBodyError as error:
            return refused(Refusal(str(error), by="front"), "")
        return JSONResponse(tokenized(scenario, ids))

    info = _answers(partial(server_info, scenario, worker))
    routes = [
        Route("/server_info", info),
        Route("/get_server_info", info),
        Route("/v1/loads", _answers(partial(loads, worker))),
        Route("/model_info", _answers(partial(model_info, scenario, worker))),
        Route("/get_model_info", _answers(partial(model_info, scenario, worker))),
        Route("/v1/models", _answers(partial(models, scenario))),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/health", _healthy),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, middleware=_guard(api_key))

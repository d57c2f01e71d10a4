"""What the HTTP edges of both dialects have in common: key, proxy, metrics page, small documents."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kvcanary.lab.chances import FaultKey
from kvcanary.lab.clock import Clock
from kvcanary.lab.deployment import Deployment
from kvcanary.lab.dressing import OverloadedOnce, Rewriter
from kvcanary.lab.gateway import Gateway, MaxBody, ProxyTimeout, ResponseCache, TokensPerMinute
from kvcanary.lab.mixups import OffByOne, WrongStream
from kvcanary.lab.scenario import Dialect

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_GENERATING: Final = (("/v1/chat/completions", True), ("/v1/completions", False))

Door = Callable[..., Awaitable[Response]]
"""Answers a request; keyword ``chat``: which of the two APIs it came by."""


class KeyGuard:
    """Refuses what lacks the key, as ``--api-key`` does: SGLang guards all but health and metrics,
    vLLM what is below ``/v1``."""

    def __init__(self, app: ASGIApp, api_key: str, dialect: Dialect) -> None:
        self._app = app
        self._dialect = dialect
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] == "http" and self._guards(scope["path"]):
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                response = JSONResponse({"error": "Unauthorized"}, status_code=401)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _guards(self, path: str) -> bool:
        if self._dialect is Dialect.VLLM:
            return path.startswith("/v1")
        return not path.startswith(("/health", "/ready", "/metrics"))


def guard(api_key: str | None, dialect: Dialect) -> list[Middleware]:
    """The check of the key, where there is one."""
    return [] if api_key is None else [Middleware(KeyGuard, api_key=api_key, dialect=dialect)]


def generation(door: Door) -> list[Route]:
    """The two ways to ask for an answer."""
    return [Route(path, partial(door, chat=chat), methods=["POST"]) for path, chat in _GENERATING]


def in_front(deployment: Deployment, api_key: str | None) -> list[Middleware]:
    """All that stands before the router, outermost first."""
    scenario = deployment.scenario
    proxy = _proxy(scenario.gateway, deployment.clock)
    return [*proxy, *guard(api_key, scenario.dialect), *_api_gateway(deployment)]


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


def budget(gateway: Gateway, clock: Clock) -> TokensPerMinute | None:
    """What each API key may send."""
    limit = gateway.tokens_per_minute
    return None if limit is None else TokensPerMinute(limit, clock)


def page(collector: Collector) -> Door:
    """``/metrics``, read at each scrape."""

    async def metrics(_: Request) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE})

    return metrics


def _proxy(gateway: Gateway, clock: Clock) -> list[Middleware]:
    """What stands before the check of the key, outermost first."""
    layers = []
    if gateway.adds_headers or gateway.reorders_json:
        order = gateway.reorders_json
        layers.append(Middleware(Rewriter, headers=gateway.adds_headers, order=order))
    if gateway.overloaded_at is not None:
        layers.append(Middleware(OverloadedOnce, number=gateway.overloaded_at))
    if gateway.max_body_bytes is not None:
        layers.append(Middleware(MaxBody, max_bytes=gateway.max_body_bytes))
    if gateway.first_byte_seconds is not None:
        seconds = gateway.first_byte_seconds
        layers.append(Middleware(ProxyTimeout, seconds=seconds, clock=clock))
    return layers


def answers(make: Callable[[], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that tells what is made anew for each request."""

    async def endpoint(_: Request) -> Response:
        return JSONResponse(make())

    return endpoint


async def healthy(_: Request) -> Response:
    """``/health``, which is always green."""
    return PlainTextResponse("OK")

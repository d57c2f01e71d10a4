"""vLLM's HTTP edge: routes of the front door (vllm-router) and of the workers."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kvcanary.lab.deployment import Deployment
from kvcanary.lab.edge import answers, budget, generation, guard, healthy, in_front, page
from kvcanary.lab.exchanges import BodyReader, FrontDoor, read_body, refused
from kvcanary.lab.halves import ParkedRooms, PulledHalf
from kvcanary.lab.limits import Refusal
from kvcanary.lab.requests import BadBodyError, parse_tokenize
from kvcanary.lab.scenario import Dialect
from kvcanary.lab.sglang_info import WorkerAddress
from kvcanary.lab.vllm_answers import VllmWords
from kvcanary.lab.vllm_info import listed_workers, models, router_workers, tokenized
from kvcanary.lab.vllm_metrics import VllmCollector
from kvcanary.lab.worker import AnyWorker


async def _not_proxied(_: Request) -> Response:
    return PlainTextResponse("Only POST requests are supported for transparent proxy", 405)


def router_app(
    deployment: Deployment,
    fallback: Deployment | None,
    addresses: tuple[WorkerAddress, ...],
    *,
    front_door_only: bool,
    api_key: str | None,
) -> Starlette:
    """The front door. Its list of models is a prefill worker's."""
    scenario = deployment.scenario
    spent = budget(scenario.gateway, deployment.clock)
    front = FrontDoor(deployment, fallback, BodyReader(deployment), spent, VllmWords())
    routes = [
        *generation(front.generate),
        Route("/v1/models", answers(partial(models, scenario, "prefill"))),
        Route("/health", healthy),
        *(Route(path, _not_proxied) for path in ("/metrics", "/version", "/server_info")),
    ]
    if not front_door_only:
        routes += [
            Route("/workers", answers(partial(router_workers, addresses))),
            Route("/list_workers", answers(partial(listed_workers, addresses))),
        ]
    return Starlette(routes=routes, middleware=in_front(deployment, api_key))


def worker_app(
    deployment: Deployment, worker: AnyWorker, rooms: ParkedRooms, *, api_key: str | None
) -> Starlette:
    """A worker on a port of its own."""
    scenario, words = deployment.scenario, VllmWords()
    half = PulledHalf(deployment, worker, rooms, BodyReader(deployment), words)

    async def tokenize(request: Request) -> Response:
        try:
            ids = parse_tokenize(await read_body(request), deployment.tokenizer)
        except BadBodyError as error:
            return refused(words, Refusal(str(error), by="front"), "")
        return JSONResponse(tokenized(scenario, worker.role, ids))

    routes = [
        *generation(half.generate),
        Route("/v1/models", answers(partial(models, scenario, worker.role))),
        Route("/version", answers(lambda: {"version": worker.version})),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/health", healthy),
        Route("/metrics", page(VllmCollector(scenario, worker))),
    ]
    return Starlette(routes=routes, middleware=guard(api_key, Dialect.VLLM))

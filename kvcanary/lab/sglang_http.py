"""SGLang's HTTP edge: routes of the front door (sglang-router) and of the workers."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvcanary.lab.deployment import Deployment
from kvcanary.lab.edge import answers, budget, generation, guard, healthy, in_front, page
from kvcanary.lab.exchanges import BodyReader, FrontDoor, read_body, refused
from kvcanary.lab.halves import BootstrapRooms, PushedHalf
from kvcanary.lab.limits import Refusal
from kvcanary.lab.requests import BadBodyError, parse_tokenize
from kvcanary.lab.scenario import Dialect
from kvcanary.lab.sglang_answers import SglangWords
from kvcanary.lab.sglang_info import (
    WorkerAddress,
    loads,
    model_info,
    models,
    router_workers,
    server_info,
    tokenized,
)
from kvcanary.lab.sglang_metrics import WorkerCollector
from kvcanary.lab.worker import AnyWorker


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
    spent = budget(scenario.gateway, deployment.clock)
    words = SglangWords(at_router=True)
    front = FrontDoor(deployment, fallback, BodyReader(deployment), spent, words)
    routes = [
        *generation(front.generate),
        Route("/v1/models", answers(partial(models, scenario))),
        Route("/health", healthy),
    ]
    if not front_door_only:
        count = len(addresses)
        router = {"router_manager": True, "routers_count": 1, "workers_count": count}
        routes += [
            Route("/workers", answers(partial(router_workers, scenario, addresses))),
            Route("/get_server_info", answers(lambda: router)),
        ]
    return Starlette(routes=routes, middleware=in_front(deployment, api_key))


def worker_app(
    deployment: Deployment, worker: AnyWorker, rooms: BootstrapRooms, *, api_key: str | None
) -> Starlette:
    """A worker on a port of its own."""
    scenario = deployment.scenario
    words = SglangWords(at_router=False)
    half = PushedHalf(deployment, worker, rooms, BodyReader(deployment), words)

    async def tokenize(request: Request) -> Response:
        try:
            ids = parse_tokenize(await read_body(request), deployment.tokenizer)
        except BadBodyError as error:
            return refused(words, Refusal(str(error), by="front"), "")
        return JSONResponse(tokenized(scenario, ids))

    info = answers(partial(server_info, scenario, worker))
    routes = [
        *generation(half.generate),
        Route("/server_info", info),
        Route("/get_server_info", info),
        Route("/v1/loads", answers(partial(loads, worker))),
        Route("/model_info", answers(partial(model_info, scenario, worker))),
        Route("/get_model_info", answers(partial(model_info, scenario, worker))),
        Route("/v1/models", answers(partial(models, scenario))),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/health", healthy),
        Route("/metrics", page(WorkerCollector(scenario, worker))),
    ]
    return Starlette(routes=routes, middleware=guard(api_key, Dialect.SGLANG))

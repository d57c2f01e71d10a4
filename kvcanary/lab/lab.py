"""The deployment in a box: a scenario behind real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import ASGIApp

from kvcanary.lab import sglang_http, vllm_http
from kvcanary.lab.clock import Clock, WallClock
from kvcanary.lab.decode import DecodeRank
from kvcanary.lab.deployment import Deployment
from kvcanary.lab.halves import BootstrapRooms, ParkedRooms
from kvcanary.lab.prefill import PrefillRank
from kvcanary.lab.scenario import Dialect, Scenario
from kvcanary.lab.server import HttpServer, listen
from kvcanary.lab.sglang_info import WorkerAddress
from kvcanary.lab.tokenizer import lab_tokenizer
from kvcanary.lab.truth import Truth
from kvcanary.lab.worker import AnyWorker


class Lab:
    """Serves a scenario while its ``async with`` block runs.

    ``seed`` drives the model's chances. ``front_door_only`` leaves out the workers' ports and
    everything about them. ``port`` is the front door's, 0 for any; workers take any. With
    ``api_key`` requests need it, as with SGLang's ``--api-key``.

    ``fallback`` is the deployment of the model that answers what is too long, where the scenario
    has one; its requests are not in ``truth``, since no worker of the lab's saw them.

    Entering raises UsageError when the port cannot be had.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        front_door_only: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.scenario = scenario
        tokenizer, clock = lab_tokenizer(), clock or WallClock()
        self.deployment = Deployment(scenario, seed=seed, tokenizer=tokenizer, clock=clock)
        elsewhere = scenario.fallen_back()
        self.fallback: Deployment | None = None
        if elsewhere is not None:
            self.fallback = Deployment(elsewhere, seed=seed, tokenizer=tokenizer, clock=clock)
        self._front_door_only = front_door_only
        self._host = host
        self._port = port
        self._api_key = api_key
        self._servers: list[HttpServer] = []
        self.url = ""
        self.workers: tuple[WorkerAddress, ...] = ()

    @property
    def model_name(self) -> str:
        """The name that the deployment serves."""
        return self.scenario.model_name

    @property
    def truth(self) -> Truth:
        """Who read what. For tests, benchmarks and the selftest's scorer."""
        return self.deployment.truth

    @property
    def worker_urls(self) -> tuple[tuple[str, str], ...]:
        """Role and URL of each worker."""
        return tuple((worker.role, worker.url) for worker in self.workers)

    @property
    def prefill(self) -> PrefillRank:
        """Rank 0 of the first prefill worker."""
        return self.deployment.prefill

    @property
    def decode(self) -> DecodeRank:
        """Rank 0 of the first decode worker."""
        return self.deployment.decode

    async def __aenter__(self) -> Self:
        front = listen(self._host, self._port)
        self.url = self._url_of(front)
        if not self._front_door_only:
            self._add_workers()
        edge = vllm_http if self.scenario.dialect is Dialect.VLLM else sglang_http
        app = edge.router_app(
            self.deployment,
            self.fallback,
            self.workers,
            front_door_only=self._front_door_only,
            api_key=self._api_key,
        )
        self._servers.append(HttpServer(app, front))
        for deployment in self._deployments:
            deployment.start()
        for server in self._servers:
            server.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for deployment in self._deployments:
                await deployment.stop()
        finally:
            await asyncio.gather(*(server.stop() for server in self._servers))
            self._servers.clear()

    @property
    def _deployments(self) -> tuple[Deployment, ...]:
        return (self.deployment,) if self.fallback is None else (self.deployment, self.fallback)

    def _add_workers(self) -> None:
        addresses = []
        make_app = self._worker_apps()
        for worker in self.deployment.workers:
            listener = listen(self._host, 0)
            url = self._url_of(listener)
            addresses.append(WorkerAddress(worker.name, worker.role, url, len(worker.ranks)))
            self._servers.append(HttpServer(make_app(worker), listener))
        self.workers = tuple(addresses)

    def _worker_apps(self) -> Callable[[AnyWorker], ASGIApp]:
        """Makes a worker's app; all of them share the rooms in which halves of requests meet."""
        if self.scenario.dialect is Dialect.VLLM:
            parked = ParkedRooms()
            return lambda worker: vllm_http.worker_app(
                self.deployment, worker, parked, api_key=self._api_key
            )
        rooms = BootstrapRooms(self.deployment)
        return lambda worker: sglang_http.worker_app(
            self.deployment, worker, rooms, api_key=self._api_key
        )

    def _url_of(self, listener: socket.socket) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{listener.getsockname()[1]}"

"""The router: which prefill and which decode worker a request meets, and which rank of each."""

from __future__ import annotations

from dataclasses import dataclass

from kvcanary.lab.decode import DecodeRank
from kvcanary.lab.prefill import PrefillRank
from kvcanary.lab.routing import Routing, policies
from kvcanary.lab.worker import AnyWorker, Rank, Worker


@dataclass(frozen=True, eq=False)
class Route:
    """Whom one request meets. Which decode worker that is may not be known before prefill is done."""

    prefill_worker: Worker[PrefillRank]
    prefill: PrefillRank
    decode_worker: Worker[DecodeRank] | None = None
    decode: DecodeRank | None = None

    @property
    def workers(self) -> tuple[AnyWorker, ...]:
        """The workers that are known."""
        return tuple(w for w in (self.prefill_worker, self.decode_worker) if w is not None)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Their ranks."""
        return tuple(rank for rank in (self.prefill, self.decode) if rank is not None)

    def count(self, change: int) -> None:
        """One request more, or one less, is open at the workers."""
        for worker in self.workers:
            worker.open_requests += change

    def taken_by(self, worker: Worker[DecodeRank]) -> Route:
        """The same with a decode worker."""
        return Route(self.prefill_worker, self.prefill, worker, worker.rank_for(None))


class Router:
    """Picks a worker of each role by policy, and a rank of each."""

    def __init__(
        self,
        prefill: tuple[Worker[PrefillRank], ...],
        decode: tuple[Worker[DecodeRank], ...],
        routing: Routing,
        *,
        seed: int,
    ) -> None:
        self._prefill = prefill
        self._decode = decode
        self._of_prefill, self._of_decode = policies(routing, len(prefill), seed)

    def route(self, first_page: bytes, rank: int | None) -> Route:
        """The workers for a request that begins like that; ``rank``: the DP rank it asks for, of
        decode and, where it has that many, of prefill."""
        loads = [worker.open_requests for worker in self._prefill]
        prefill = self._prefill[self._of_prefill.choose(loads, first_page)]
        loads = [worker.open_requests for worker in self._decode]
        decode = self._decode[self._of_decode.choose(loads, first_page)]
        return Route(prefill, prefill.rank_for(rank), decode, decode.rank_for(rank))

"""What every engine's module offers: a value of functions, documents in, a worker out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kvcanary.deployment.facts import Role, Worker
from kvcanary.engines.documents import Documents, Want


class MakeWorker(Protocol):
    """Makes the worker, as far as its documents tell. Never raises, whatever they hold."""

    def __call__(self, url: str, documents: Documents, role: Role | None = None) -> Worker: ...


def _nothing_older(_: Documents) -> tuple[Want, ...]:
    return ()


def _no_arguments(_: Documents) -> Mapping[str, object] | None:
    return None


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's dialect.

    Attributes:
        name: as records and reports call it.
        wants: the documents that its figures stand in.
        speaks: whether documents are this engine's.
        worker: makes the worker.
        use: the documents that tell how much of the pool is in use now; none where nothing tells it.
        metrics: the names that are read from its metrics.
        older: what to ask for in place of documents that did not come: older names.
        owner: who it says its models are owned by: a hint at what to ask for first, and no more.
        arguments: what it was started with, as far as it tells; secrets included.
    """

    name: str
    wants: tuple[Want, ...]
    speaks: Callable[[Documents], bool]
    worker: MakeWorker
    use: tuple[Want, ...] = ()
    metrics: frozenset[str] = frozenset()
    owner: str | None = None
    older: Callable[[Documents], tuple[Want, ...]] = _nothing_older
    arguments: Callable[[Documents], Mapping[str, object] | None] = _no_arguments

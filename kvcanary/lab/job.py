"""One request as prefill sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvcanary.lab.limits import Refusal
from kvcanary.lab.room import Room
from kvcanary.lab.tokenizer import IntArray


def _nothing() -> IntArray:
    return np.empty(0, np.int32)


@dataclass(eq=False, slots=True)
class Job:
    """What prefill thinks of one request.

    ``ids``: what it computes. ``received``: when it came. ``pending_abort``: it refused the request;
    whether that ends the request depends on the gate. ``table``: its pages, of which the first
    ``hits`` were in the cache and the first ``ready`` need no computing. ``shows_cached``: usage
    tells of them. ``released``: its pages are no longer its own.
    """

    room: Room
    ids: IntArray
    received: float
    pending_abort: Refusal | None = None
    keys: list[bytes] = field(default_factory=list)
    table: IntArray = field(default_factory=_nothing)
    hits: int = 0
    ready: int = 0
    shows_cached: bool = True
    released: bool = False

"""The predicates at which the lab can be wrong. True is right; a fault is one that is False."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """What the doors of the queues look at.

    ``sees_pending_abort``: the prefill queue's door notices that a request was refused for its
    length before it is admitted. False is the GLM-5.3 path (S30233): the refusal stands in a field
    that the gates do not read.
    """

    sees_pending_abort: bool

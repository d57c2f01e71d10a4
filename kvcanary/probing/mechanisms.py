"""The kinds of fault that probes look for, each in a line. What a probe catches is a kind, not an instance."""

from enum import StrEnum


class Mechanism(StrEnum):
    """Keys of the fault catalogue."""

    REJECTION_NOT_TERMINAL = "rejection-not-terminal"
    FREED_TOO_EARLY = "freed-too-early"
    SUCCESS_WITHOUT_COVERAGE = "success-without-coverage"
    READ_BEFORE_READY = "read-before-ready"
    SLOT_REUSE = "slot-reuse"
    WRONG_CACHE_KEY = "wrong-cache-key"
    PAGE_BOUNDARY = "page-boundary"
    ROW_OR_RANK_MIX_UP = "row-or-rank-mix-up"
    PREEMPT_RESUME = "preempt-resume"
    CAPACITY_CONTRACT = "capacity-contract"
    RESOURCE_LEAK = "resource-leak"
    GATEWAY_MIX_UP = "gateway-mix-up"
    NO_ISOLATION_BY_DESIGN = "no-isolation-by-design"

    @property
    def meaning(self) -> str:
        """What goes wrong, in a line."""
        return _MEANINGS[self]


_MEANINGS = {
    Mechanism.REJECTION_NOT_TERMINAL: "one role refuses or aborts a request, the other goes on with it",
    Mechanism.FREED_TOO_EARLY: "pages return to the free list before their last reader or writer is done",
    Mechanism.SUCCESS_WITHOUT_COVERAGE: "a transfer is called complete though pages are missing or stale",
    Mechanism.READ_BEFORE_READY: "pages are read before they are written",
    Mechanism.SLOT_REUSE: "a slot, request id or metadata is used again while its owner lives",
    Mechanism.WRONG_CACHE_KEY: "salt, adapter or image is missing from the prefix key, or hashes collide",
    Mechanism.PAGE_BOUNDARY: "lengths at a page's or chunk's edge are cut or counted wrongly",
    Mechanism.ROW_OR_RANK_MIX_UP: "rows of a batch, or parallel ranks, are crossed",
    Mechanism.PREEMPT_RESUME: "preemption, retraction or resumption loses or repeats state",
    Mechanism.CAPACITY_CONTRACT: "a pool is smaller than what is promised: crash, dead-lock, silent cut",
    Mechanism.RESOURCE_LEAK: "pages, slots or memory never come back",
    Mechanism.GATEWAY_MIX_UP: "a router, cache or connection pool hands one caller another's answer",
    Mechanism.NO_ISOLATION_BY_DESIGN: "a prefix cache that tenants share shows by its timing who was there",
}

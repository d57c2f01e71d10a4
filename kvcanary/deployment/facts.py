"""What is known of a deployment before any prompt is sent: its workers, pools and limits."""

from enum import StrEnum

from kvcanary.record.base import Recorded


class Role(StrEnum):
    """What a worker does."""

    PREFILL = "prefill"
    DECODE = "decode"
    UNIFIED = "unified"


class Worker(Recorded):
    """One engine process. What it does not tell is None: unknown, which is never a pass."""

    role: Role
    url: str
    engine: str
    version: str | None = None
    pool_tokens: int | None = None
    """KV capacity of its smallest DP rank."""
    limit_tokens: int | None = None
    """Longest prompt that it accepts (SGLang: ``max_req_input_len - 1``)."""
    context_tokens: int | None = None
    page_tokens: int | None = None
    started_at: float | None = None
    """When its process started, Unix seconds (``process_start_time_seconds``)."""
    source: str = ""
    """Where the figures come from."""


class DangerWindow(Recorded):
    """Prompt lengths (both ends included) that one role refuses while another waits for them.

    Source: S30233, the GLM-5.3 path: ``prefill.max_req_input_len <= len < decode.max_req_input_len``.
    """

    first_tokens: int
    last_tokens: int


class Facts(Recorded):
    """The deployment as discovered. A capacity for one request is a minimum, never a sum."""

    context_tokens: int | None
    context_source: str
    workers: tuple[Worker, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be discovered, and the way to make it known."""

    def _least(self, field: str, *roles: Role) -> int | None:
        values = [getattr(worker, field) for worker in self.workers if worker.role in roles]
        return min(values) if values and None not in values else None

    @property
    def prefill_pool_tokens(self) -> int | None:
        return self._least("pool_tokens", Role.PREFILL, Role.UNIFIED)

    @property
    def decode_pool_tokens(self) -> int | None:
        return self._least("pool_tokens", Role.DECODE, Role.UNIFIED)

    @property
    def limit_tokens(self) -> int | None:
        """The longest prompt that every worker accepts."""
        return self._least("limit_tokens", *Role)

    @property
    def surest_limit_tokens(self) -> int | None:
        """A prompt longer than this is refused wherever it is routed: the roomiest worker of either role."""
        limits = []
        for role in (Role.PREFILL, Role.DECODE):
            known = [w.limit_tokens for w in self.workers if w.role in (role, Role.UNIFIED)]
            if None in known or not known:
                return None
            limits.append(max(k for k in known if k is not None))
        return min(limits)

    @property
    def page_tokens(self) -> int | None:
        known = [worker.page_tokens for worker in self.workers if worker.page_tokens]
        return max(known) if known else None

    @property
    def danger_window(self) -> DangerWindow | None:
        """Lengths within the promised context that a prefill worker refuses and a decode worker takes."""
        prefill = self._least("limit_tokens", Role.PREFILL)
        takes = [w.limit_tokens for w in self.workers if w.role is Role.DECODE and w.limit_tokens]
        if prefill is None or not takes:
            return None
        last = max(takes) if self.context_tokens is None else min(max(takes), self.context_tokens)
        return DangerWindow(first_tokens=prefill + 1, last_tokens=last) if prefill < last else None

"""What the workers counted while a stage of the plan was under way."""

from kvcanary.record.base import Recorded


class Work(Recorded):
    """How far the counters of all workers of one role went; None: not told."""

    requests: int | None
    """Finished requests."""
    prompt_tokens: int | None
    """Cached ones included, as SGLang and vLLM count them."""
    generation_tokens: int | None


class Window(Recorded):
    """The time in which some exchanges were sent and ended, and what the workers did in it."""

    group: str
    exchanges: tuple[int, ...]
    """Numbers of all that was sent."""
    prefill: Work | None = None
    """None where no worker has that role, or some worker did not tell or began anew."""
    decode: Work | None = None
    quiet: bool | None = None
    """Whether no worker had an open request before and after, and all counters stood still then."""
    held_tokens: int | None = None
    """How much more of their pools requests hold at the decode workers after it than before."""

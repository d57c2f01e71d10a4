"""What a worker has counted since it started."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Running totals, apart for plain and streaming requests."""

    plain: int = 0
    streaming: int = 0

    def add(self, amount: int, *, streaming: bool) -> None:
        """Count ``amount`` more."""
        if streaming:
            self.streaming += amount
        else:
            self.plain += amount

    @property
    def total(self) -> int:
        """Both together."""
        return self.plain + self.streaming


@dataclass
class Counters:
    """Tokens and requests. The prefill worker counts what it computes: one for a placeholder."""

    prompt_tokens: Tally = field(default_factory=Tally)
    generation_tokens: Tally = field(default_factory=Tally)
    requests: Tally = field(default_factory=Tally)
    cached_tokens: int = 0
    aborted_requests: int = 0

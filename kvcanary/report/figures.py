"""The few sums over a record that several formats show."""

from dataclasses import dataclass

from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import Status
from kvcanary.verdict.findings import Severity


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to, in numbers. None: unknown."""

    requests: int
    """Sent, whatever became of them; without those that reached nobody."""
    prompt_tokens: int
    """Of those, as the server counted them, else as planned."""
    completion_tokens: int
    ended_at: float | None
    """Unix time at which the last answer ended; None where nothing was sent."""
    seconds: float | None
    """From the start of the run to there."""
    failed: int
    """Claims, required or not."""
    inconclusive: int
    """Required claims."""
    leaks: int
    """Findings; a leak is never waived."""
    bound: float | None
    """Upper 95 % bound of the rate of bad answers in the worst stratum that was measured."""


def figures(record: RunRecord) -> Figures:
    """The sums of this record."""
    sent = [e for e in record.exchanges if e.outcome != "not_reached"]
    ended = max((e.started_at + e.total_seconds for e in record.exchanges), default=None)
    claims = record.verdict.claims if record.verdict else ()
    strata = record.verdict.strata if record.verdict else ()
    return Figures(
        requests=len(sent),
        prompt_tokens=sum(e.length_tokens for e in sent),
        completion_tokens=sum(e.completion_tokens or 0 for e in sent),
        ended_at=ended,
        seconds=None if ended is None else max(0.0, ended - record.info.started_at),
        failed=sum(c.status is Status.FAIL for c in claims),
        inconclusive=sum(c.status is Status.INCONCLUSIVE and c.required for c in claims),
        leaks=sum(f.severity is Severity.LEAK for f in record.findings),
        bound=max((s.bound for s in strata if s.bound is not None), default=None),
    )

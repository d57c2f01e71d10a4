"""What a run asserts, each claim pass, fail or inconclusive, and what follows for the exit code."""

from enum import IntEnum, StrEnum

from kvcanary.record.base import Recorded


class Status(StrEnum):
    """Three values: what was not measured is inconclusive, never pass."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class ExitCode(IntEnum):
    """What a gate reads. The output format never changes it."""

    PASS = 0
    VIOLATION = 1
    COULD_NOT_RUN = 2
    INCONCLUSIVE = 3
    INTERRUPTED = 130


class ClaimName(StrEnum):
    """What can be claimed."""

    OWNERSHIP = "ownership"
    ISOLATION = "isolation"
    CAPACITY = "capacity"
    REFUSAL = "refusal"
    ACCOUNTING = "accounting"


class Claim(Recorded):
    """One assertion with the reason for its status in a sentence."""

    name: ClaimName
    status: Status
    required: bool
    text: str


class PairCount(Recorded):
    """What one pair of workers answered in a stratum."""

    pair: str
    measured: int
    lost: int


class Stratum(Recorded):
    """Exchanges that share the same way to fail, and what they are worth."""

    name: str
    purpose: str
    path: str
    """Interface: chat or completions, streaming or whole."""
    shortest_tokens: int
    longest_tokens: int
    sent: int
    refused: int
    measured: int
    """Exchanges whose labels could be judged against the control group."""
    lost: int
    """Of those, how many lost at least one label that the control keeps."""
    foreign: int
    """Answers with text of another request."""
    pairs: tuple[PairCount, ...] = ()
    """By pair of workers, where there are several and it can be seen; unmet ones have nothing measured."""
    bound: float | None
    """Upper 95 % bound of the rate of bad answers, of the worst pair that was met; None where nothing was
    measured."""
    exposure: str
    """measured, estimated or unknown."""
    exposed_tokens: int | None
    exposure_note: str


class Holding(Recorded):
    """What one worker, or one DP rank of it, holds of the longest request that is promised."""

    worker: str
    """Short name: P1, D2, W1."""
    url: str
    role: str
    rank: int | None
    """None where it has no ranks, or does not tell them apart."""
    pool_tokens: int | None
    limit_tokens: int | None
    page_tokens: int | None
    used_tokens: int | None
    source: str
    """Where the pool's size comes from."""
    status: Status
    note: str
    """Why, in a few words."""


class Advice(Recorded):
    """A safety switch that is off or cannot be seen, and how to set it. Never a failure."""

    switch: str
    on: bool | None
    flag: str
    """Empty where this engine has none."""
    why: str
    workers: tuple[str, ...]
    """Short names."""


class Verdict(Recorded):
    """The end of a run."""

    status: Status
    exit_code: ExitCode
    headline: str
    claims: tuple[Claim, ...]
    strata: tuple[Stratum, ...]
    decoys_sent: int
    decoys_seen: int
    holdings: tuple[Holding, ...] = ()
    """Each pool beside the promise."""
    advice: tuple[Advice, ...] = ()
    """Safety switches to set."""

    @property
    def unsound(self) -> bool:
        """Inconclusive though no claim that is required is: the run did not come to its end. A report that
        tells claims has to tell that, too, or it would look green."""
        short = any(c.required and c.status is Status.INCONCLUSIVE for c in self.claims)
        return self.exit_code is ExitCode.INCONCLUSIVE and not short

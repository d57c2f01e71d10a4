"""What ``--notify`` posts: that the outcome of a kind of run has changed, without any server text."""

from enum import StrEnum

from kvcanary.record.base import Recorded

SCHEMA_VERSION = 1


class Outcome(StrEnum):
    """How a run ended: its verdict, or none."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    COULD_NOT_RUN = "could not run"


class NoticedFinding(Recorded):
    """A finding in a line; its evidence stays in the record."""

    rule: str
    severity: str
    title: str


class Notice(Recorded):
    """``text`` says it all in a line, under the name that chat webhooks read."""

    schema_version: int = SCHEMA_VERSION
    text: str
    outcome: Outcome
    previous: Outcome | None
    """None: this is the first run of its kind that is remembered."""
    exit_code: int
    headline: str
    """The verdict's own; of a run that could not be, why."""
    target: str
    suite: str
    model: str | None = None
    run: str | None = None
    """As commands name it: seven hexadecimal digits. None where there was none."""
    at: float
    """Seconds since 1970, when the run began; of one that could not, when that was told."""
    findings: tuple[NoticedFinding, ...] = ()
    """The first of them, worst first."""
    findings_in_all: int = 0

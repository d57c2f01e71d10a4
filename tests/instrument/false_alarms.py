"""Healthy labs with habits, checked again and again: how often does ``smoke`` accuse one, or not decide?"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kvcanary.record.run import RunRecord
from kvcanary.selftest.look_alikes import look_alikes
from kvcanary.verdict.claims import ExitCode
from tests.instrument.lab_runs import ACCUSING, Setup, ran

HABITS: tuple[tuple[str, ...], ...] = (
    (),
    ("copy-error=0",),
    ("copy-error=0.01",),
    ("copy-error=0.02",),
    ("copy-error=0.03",),
    ("chatter",),
    ("quote",),
    ("unrepeatable",),
    ("chatter", "copy-error=0.03"),
    ("quote", "unrepeatable", "copy-error=0.02"),
    *(case.habits for case in look_alikes() if case.habits),
)
"""Noise, and all look-alikes but the small pool, which is no healthy deployment."""


@dataclass(frozen=True)
class Outcome:
    """One run, in short. ``findings``: rules with their severities. ``accused``: it was said to leak, to
    lose, to fail or to miscount, or a claim failed."""

    seed: int
    habits: tuple[str, ...]
    code: int
    headline: str
    findings: tuple[str, ...]
    accused: bool
    answers: int
    phantom_names: int
    """Names in answers that belong to phantoms or to nobody."""
    phantom_words: int

    def fields(self) -> dict[str, Any]:
        """For a line of JSON."""
        return asdict(self)

    @staticmethod
    def of(fields: dict[str, Any]) -> "Outcome":
        """From what `fields` gave."""
        lists = {"habits": tuple(fields["habits"]), "findings": tuple(fields["findings"])}
        return Outcome(**{**fields, **lists})

    def __str__(self) -> str:
        habits = " ".join(self.habits) or "no habit"
        found = f" [{', '.join(self.findings)}]" if self.findings else ""
        return f"seed {self.seed}, {habits}: exit {self.code}, {self.headline}{found}"


def setups(runs: int, first_seed: int = 0, suite: str = "smoke") -> Iterator[Setup]:
    """Every habit in turn, each run with a seed of its own."""
    for seed in range(first_seed, first_seed + runs):
        yield Setup(habits=HABITS[seed % len(HABITS)], seed=seed, suite=suite)


def outcome(setup: Setup) -> Outcome:
    """Run it."""
    return told(setup, ran(setup).record)


def told(setup: Setup, record: RunRecord) -> Outcome:
    """What came of it."""
    assert record.verdict
    return Outcome(
        seed=setup.seed,
        habits=setup.habits,
        code=int(record.verdict.exit_code),
        headline=record.verdict.headline,
        findings=tuple(f"{f.rule} ({f.severity.value})" for f in record.findings),
        accused=record.verdict.exit_code is ExitCode.VIOLATION
        or any(f.severity in ACCUSING for f in record.findings),
        answers=sum(e.answer_characters > 0 for e in record.exchanges),
        phantom_names=sum(len(e.nulls.names_seen) for e in record.exchanges),
        phantom_words=sum(len(e.nulls.phantom_words) for e in record.exchanges),
    )

"""All that the page says, in its order: the verdict and its power, findings, claims, pictures, figures."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from kvcanary.record.run import RunRecord
from kvcanary.report.figures import figures
from kvcanary.report.html import (
    first_token,
    ladder,
    leaked_pages,
    meetings,
    pool_use,
    pools,
    reach,
)
from kvcanary.report.html.figure import MAX_FINDINGS, Figure, Missing
from kvcanary.report.html.words import counted, number, percent
from kvcanary.report.summary import ONE_KEY, UNKNOWN_WORKERS
from kvcanary.verdict.claims import Advice, Claim, ClaimName, Status, Stratum, Verdict
from kvcanary.verdict.findings import Finding, Severity
from kvcanary.verdict.judge import CLAIM_OF_RULE
from kvcanary.verdict.strata import leak_bound

_RULE = re.compile("[a-z0-9-]{1,40}/[a-z0-9-]{1,60}")
MAX_EVIDENCE = 6
"""Lines of evidence that are seen at once."""
MAX_FOLDED = 34
"""Further ones that can be unfolded."""
MAX_STRATA = 200
PROVEN = (Severity.LEAK, Severity.CORRUPTION)
MAX_GAPS = 60
CONFIDENCE = percent(0.95)
PICTURES: tuple[Callable[[RunRecord], Figure | Missing], ...] = (
    pools.draw,
    ladder.draw,
    pool_use.draw,
    reach.draw,
    leaked_pages.draw,
    meetings.draw,
    first_token.draw,
)


@dataclass(frozen=True, slots=True)
class Figured:
    """One of the few figures that the verdict rests on."""

    name: str
    value: str
    about: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A finding with its number; ``folded`` are further lines of evidence, ``more`` those left out."""

    number: int
    finding: Finding
    claim: ClaimName | None
    odds: str
    evidence: tuple[str, ...]
    folded: tuple[str, ...]
    more: int
    replayable: bool
    explained: bool
    """Whether the rule is a plain word: nothing else belongs in a command that somebody copies."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the template writes down."""

    title: str
    status: str
    word: str
    """The verdict in capitals."""
    headline: str
    unfinished: str
    """Why the run ended early; empty where it did not."""
    facts: tuple[tuple[str, str], ...]
    """What was run, against what, when."""
    power: tuple[Figured, ...]
    findings: tuple[Shown, ...]
    more_findings: int
    claims: tuple[Claim, ...]
    gaps: tuple[str, ...]
    """What was not measured, and why."""
    figures: tuple[Figure, ...]
    missing: tuple[Missing, ...]
    strata: tuple[Stratum, ...]
    condemned: frozenset[str]
    """Strata with a leak or corruption."""
    more_strata: int
    exposure_notes: tuple[str, ...]
    advice: tuple[Advice, ...]
    exit_code: int | None


def page_of(record: RunRecord) -> Page:
    """The page of a record, complete or partial."""
    verdict, info = record.verdict, record.info
    drawn = [draw(record) for draw in PICTURES]
    strata = verdict.strata if verdict else ()
    stopped = record.stopped if verdict is None or verdict.headline != record.stopped else None
    notes = dict.fromkeys(s.exposure_note for s in strata if s.purpose == "reader")
    return Page(
        title=f"kvcanary: {verdict.status.value if verdict else 'unfinished'}, run {info.run:07x}",
        status=verdict.status.value if verdict else "unfinished",
        word=verdict.status.value.upper() if verdict else "UNFINISHED",
        headline=verdict.headline if verdict else "The run ended before anything could be judged",
        unfinished=(stopped or ("" if verdict else "interrupted")).rstrip("."),
        facts=tuple(_facts(record)),
        power=tuple(_power(record, verdict)) if verdict else (),
        findings=tuple(_shown(n, f) for n, f in enumerate(record.findings[:MAX_FINDINGS], start=1)),
        more_findings=max(0, len(record.findings) - MAX_FINDINGS),
        claims=verdict.claims if verdict else (),
        gaps=tuple(_gaps(record, verdict)),
        figures=tuple(d for d in drawn if isinstance(d, Figure)),
        missing=tuple(d for d in drawn if isinstance(d, Missing)),
        strata=strata[:MAX_STRATA],
        condemned=frozenset(_condemned(record)),
        more_strata=max(0, len(strata) - MAX_STRATA),
        exposure_notes=tuple(filter(None, notes)),
        advice=tuple(a for a in verdict.advice if a.on is not True) if verdict else (),
        exit_code=int(verdict.exit_code) if verdict else None,
    )


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    info = record.info
    yield "Target", info.target
    yield "Model", info.model
    yield "Interface", f"{info.api}, {'streaming' if info.stream else 'whole answers'}"
    yield "Suite", info.suite
    yield "Began", f"{datetime.fromtimestamp(info.started_at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    yield "Run", f"{info.run:07x}"
    yield "Tool", f"kvcanary {info.kvcanary_version}"


def _power(record: RunRecord, verdict: Verdict) -> Iterator[Figured]:
    """What a pass would be worth, and what a failure rests on."""
    bounded = [s for s in verdict.strata if s.bound is not None]
    facts = record.facts
    if bounded:
        promised = facts.context_tokens if facts else None
        yield Figured(
            "Tested up to",
            f"{max(s.longest_tokens for s in bounded):,} tokens",
            "no context is promised" if promised is None else f"of {promised:,} promised",
        )
        worst = max(bounded, key=lambda s: (s.bound or 0.0, s.longest_tokens))
        bad = max(worst.lost, min(worst.foreign, worst.measured))
        yield Figured(
            "Bad answers, worst stratum",
            f"{bad} of {worst.measured}",
            f"`{worst.name}`, so the rate is below {percent(worst.bound or 1.0)} at {CONFIDENCE}"
            if bad < worst.measured
            else f"in `{worst.name}`",
        )
        if any(c.name is ClaimName.ISOLATION for c in verdict.claims):
            leaks = leak_bound(record, verdict.strata)
            yield Figured(
                "Rate of leaks",
                f"below {percent(leaks)}" if leaks < 1 else "not bounded",
                f"at {CONFIDENCE}, by what simulated leaks bring out"
                if leaks < 1
                else "by so few answers of this model",
            )
    elif facts:
        yield Figured(
            "Context limit", number(facts.context_tokens), facts.context_source or "promised"
        )
        yield Figured("Workers known", f"{len(facts.workers):,}", "no answers were compared")
    exposed = [s for s in verdict.strata if s.exposed_tokens]
    if exposed:
        most = max(exposed, key=lambda s: s.exposed_tokens or 0)
        yield Figured(
            "Pages of others, at least",
            f"{most.exposed_tokens:,} tokens",
            f"read by `{most.name}`, {most.exposure}",
        )
    if record.exchanges:
        sums = figures(record)
        yield Figured(
            "Sent", counted(sums.requests, "request"), f"{sums.prompt_tokens:,} prompt tokens"
        )
        simulated = [s for s in record.simulations if s.answered]
        seen = sum(s.recognised for s in simulated)
        yield Figured(
            "Positive control",
            f"{verdict.decoys_seen} of {verdict.decoys_sent} decoys",
            f"recognised; {seen} of {len(simulated)} simulated leaks"
            if simulated
            else "recognised; no leak was simulated",
        )


def _shown(number: int, finding: Finding) -> Shown:
    shown = MAX_EVIDENCE + MAX_FOLDED
    odds = "" if finding.odds is None else f"{max(finding.odds, 1e-99):.0e}"
    return Shown(
        number,
        finding,
        CLAIM_OF_RULE.get(finding.rule.partition("/")[0]),
        odds,
        finding.evidence[:MAX_EVIDENCE],
        finding.evidence[MAX_EVIDENCE:shown],
        max(0, len(finding.evidence) - shown),
        bool(finding.exchanges),
        _RULE.fullmatch(finding.rule) is not None,
    )


def _condemned(record: RunRecord) -> Iterator[str]:
    proven = [f for f in record.findings if f.severity in PROVEN and not f.waived]
    numbers = {n for f in proven for n in f.exchanges}
    yield from (e.group for e in record.exchanges if e.number in numbers)


def _gaps(record: RunRecord, verdict: Verdict | None) -> Iterator[str]:
    """What this run says nothing about."""
    if verdict:
        for claim in verdict.claims:
            if claim.status is Status.INCONCLUSIVE:
                yield f"{claim.name.value}: {claim.text}"
    gaps = list(_left_out(record))
    yield from gaps[:MAX_GAPS]
    if len(gaps) > MAX_GAPS:
        yield f"and {len(gaps) - MAX_GAPS:,} more, which the record names"


def _left_out(record: RunRecord) -> Iterator[str]:
    if record.plan:
        yield from record.plan.skipped
    for stratum in record.verdict.strata if record.verdict else ():
        unmet = [p.pair for p in stratum.pairs if not p.measured]
        if unmet:
            rest = f" and {len(unmet) - 8} more" if len(unmet) > 8 else ""
            yield f"`{stratum.name}` had no answer of its own from {', '.join(unmet[:8])}{rest}"
    if record.facts:
        yield from record.facts.notes
    if record.exchanges:
        if not record.info.separation.keys_differ:
            yield ONE_KEY
        if record.topology is None:
            yield UNKNOWN_WORKERS

"""Every detector, run over one record."""

from collections.abc import Sequence

from kvcanary.detect import (
    accounting,
    adapters,
    advisories,
    availability,
    bystanders,
    cached,
    capacity,
    clipped,
    continuity,
    drift,
    expectation,
    first_token,
    foreign,
    handoff,
    hardware,
    identity,
    output,
    ownership,
    pool_return,
    refusal,
    replay,
    shared_cache,
    soak,
    spoilt,
    strays,
)
from kvcanary.record.run import RunRecord
from kvcanary.verdict.findings import FAILING, Finding, Severity

_ORDER = list(Severity)


def detected(record: RunRecord, known: Sequence[advisories.Advisory]) -> tuple[Finding, ...]:
    """Everything that detectors find, worst first. ``known``: faults of engines to look for."""
    exchanges, facts = record.exchanges, record.facts
    found: list[Finding] = list(ownership.findings(ownership.measure(exchanges)))
    if record.scale:
        found += foreign.findings(exchanges, record.scale)
    if facts:
        found += capacity.findings(facts)
        if not any(f.rule.startswith("capacity/") and f.severity in FAILING for f in found):
            found += capacity.refused_within_promise(exchanges, facts)
        found += refusal.findings(exchanges, facts)
        later = record.facts_after  # XID errors come while a run lasts
        found += hardware.findings(later.gpus if later and later.gpus else facts.gpus)
        found += advisories.findings(known, facts)
    found += drift.findings(record.baseline, facts, record.info.site_key)
    found += expectation.findings(exchanges)
    found += accounting.findings(exchanges)
    found += handoff.findings(record.windows, exchanges, facts)
    found += identity.findings(exchanges, facts, record.facts_after)
    found += strays.findings(exchanges)
    found += first_token.findings(exchanges)
    found += availability.findings(exchanges, facts.limit_tokens if facts else None)
    found += bystanders.findings(exchanges)
    found += replay.findings(exchanges)
    found += spoilt.findings(exchanges)
    found += soak.findings(exchanges)
    found += output.findings(exchanges, facts.context_tokens if facts else None)
    found += continuity.findings(exchanges)
    found += clipped.findings(exchanges)
    found += pool_return.findings(facts, record.facts_after, record.windows)
    if not record.info.replays:  # whose text may be in a cache already
        found += cached.findings(exchanges)
        found += adapters.findings(exchanges)
        found += shared_cache.findings(exchanges, record.info.separation)
    return tuple(sorted(found, key=lambda f: (_ORDER.index(f.severity), f.odds or 0.0)))

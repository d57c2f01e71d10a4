"""The strata of a run: what was measured of each, and how small a rate that rules out."""

from collections.abc import Sequence

from kvcanary.detect import ownership
from kvcanary.record.exchange import DECOYS, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import PairCount, Stratum
from kvcanary.verdict.exposure import exposure_of
from kvcanary.verdict.findings import Finding, Severity
from kvcanary.verdict.statistics import upper_bound


def strata_of(record: RunRecord, found: Sequence[Finding]) -> tuple[Stratum, ...]:
    groups = {group.name: group for group in ownership.measure(record.exchanges)}
    names = dict.fromkeys(
        e.group
        for e in record.exchanges
        if e.purpose not in (Purpose.CALIBRATION, *DECOYS, Purpose.CONFIRMATION, Purpose.LADDER)
    )
    strata = []
    for name in names:
        members = [e for e in record.exchanges if e.group == name]
        group = groups.get(name)
        measured, lost = (len(group.measured), len(group.losing)) if group else (0, 0)
        leaking = {n for f in found if f.severity is Severity.LEAK for n in f.exchanges}
        foreign_answers = sum(e.number in leaking for e in members)
        bad = max(lost, min(foreign_answers, measured))
        pairs = _pairs(record, group)
        reader = members[0].purpose is Purpose.READER
        bounds = [upper_bound(p.lost, p.measured) for p in pairs if p.measured and reader]
        lengths = [e.length_tokens for e in members]
        exposure = exposure_of(record, members)
        strata.append(
            Stratum(
                name=name,
                purpose=members[0].purpose.value,
                path=f"{members[0].api}, {'streaming' if members[0].stream else 'whole'}",
                shortest_tokens=min(lengths),
                longest_tokens=max(lengths),
                sent=len(members),
                refused=sum(e.outcome == "refused" for e in members),
                measured=measured,
                lost=lost,
                foreign=foreign_answers,
                pairs=pairs,
                bound=max([upper_bound(bad, measured), *bounds]) if measured else None,
                exposure=exposure.kind,
                exposed_tokens=exposure.tokens,
                exposure_note=exposure.note,
            )
        )
    return tuple(strata)


def _pairs(record: RunRecord, group: ownership.Group | None) -> tuple[PairCount, ...]:
    """The stratum by pairs of workers; nothing where there is one pair or none is known."""
    topology = record.topology
    if topology is None or group is None or len(topology.pairs) < 2:
        return ()
    counts = []
    for pair in topology.pairs:
        met = [e for e in group.measured if e.met == pair]
        counts.append(
            PairCount(pair=str(pair), measured=len(met), lost=sum(not e.kept for e in met))
        )
    return tuple(counts)


def leak_bound(record: RunRecord, strata: Sequence[Stratum]) -> float:
    """The worst exposed stratum's bound, discounted by the share of simulated leaks that were recognised:
    what can be said of leaks if real ones show as often as the simulated ones did."""
    simulated = [s for s in record.simulations if s.answered]
    recognised = sum(s.recognised for s in simulated)
    bounds = [s.bound for s in strata if s.bound is not None and s.exposed_tokens]
    if not recognised or not bounds:
        return 1.0
    return min(1.0, max(bounds) * len(simulated) / recognised)

"""The strata of a run: what was measured of each, and how small a rate that rules out."""

from collections.abc import Sequence

from kvcanary.detect import ownership
from kvcanary.record.exchange import DECOYS, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import PairCount, Stratum
from kvcanary.verdict.exposure import exposure_of
from kvcanary.verdict.findings import Finding, Severity
from kvcanary.verdict.statistics import BOTH, lower_bound, upper_bound


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
                refused=sum(e.outcome == "refused" or e.unsupported for e in members),
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
    """An upper 95 % bound of the rate of leaks: 1.0 where there is none.

    A leak shows when it happens and when this model gives it away. The worst exposed stratum's bound of what
    showed is divided by the lower bound of the share of simulated leaks that were recognised: both exact, and
    each at 97.5 %, so that both hold together at 95 %. It rests on real leaks showing as often as simulated
    ones do.
    """
    simulated = [s for s in record.simulations if s.answered]
    shown = [_worst(s) for s in strata if s.bound is not None and s.exposed_tokens]
    if not simulated or not shown:
        return 1.0
    sensitivity = lower_bound(sum(s.recognised for s in simulated), len(simulated), BOTH)
    return min(1.0, max(shown) / sensitivity) if sensitivity > 0 else 1.0


def _worst(stratum: Stratum) -> float:
    """The bound of a stratum or of its worst pair of workers, at the confidence that two bounds share."""
    bad = max(stratum.lost, min(stratum.foreign, stratum.measured))
    pairs = (upper_bound(p.lost, p.measured, BOTH) for p in stratum.pairs if p.measured)
    return max(upper_bound(bad, stratum.measured, BOTH), *pairs, 0.0)

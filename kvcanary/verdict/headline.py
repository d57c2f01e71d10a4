"""The one line that people read: what failed, what is unknown, or what the pass is worth."""

from collections.abc import Sequence

from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import Claim, ClaimName, Status, Stratum
from kvcanary.verdict.findings import FAILING, Finding
from kvcanary.verdict.statistics import upper_bound
from kvcanary.verdict.strata import leak_bound


def headline(
    status: Status,
    claims: Sequence[Claim],
    strata: Sequence[Stratum],
    found: Sequence[Finding],
    record: RunRecord,
) -> str:
    """The worst stratum of a pass, or the first reason against one."""
    if status is Status.FAIL:
        return next(f.title for f in found if f.severity in FAILING and not f.waived)
    if status is Status.INCONCLUSIVE:
        if record.stopped:
            return record.stopped
        unknown = [c.text for c in claims if c.required and c.status is Status.INCONCLUSIVE]
        return unknown[0] if unknown else "nothing was sent, or no claim is required"
    bounded = [s for s in strata if s.bound is not None]
    if not bounded:
        (only, *others) = [c for c in claims if c.required]
        if only.name is ClaimName.CAPACITY and not others:
            return only.text
        return "every required claim holds; no answers were compared"
    worst = max(bounded, key=lambda s: (s.bound or 0.0, s.longest_tokens))
    longest = max(s.longest_tokens for s in bounded)
    context = record.facts.context_tokens if record.facts else None
    promised = f" of {context:,} promised" if context else ""
    isolated = any(c.required and c.name is ClaimName.ISOLATION for c in claims)
    leaks = _leaks(leak_bound(record, strata)) if isolated else ""
    return (
        f"tested up to {longest:,}{promised} tokens; worst stratum {_worst_part(worst)} bad, "
        f"rate of bad answers below {worst.bound:.0%}{leaks} at 95 %"
    )


def _leaks(bound: float) -> str:
    return (
        f", of leaks below {bound:.0%}" if bound < 1 else ", of leaks not bounded by so few answers"
    )


def _worst_part(stratum: Stratum) -> str:
    """The stratum that the bound is of; where its worst pair of workers is worse than the whole, that pair."""
    met = [p for p in stratum.pairs if p.measured]
    pair = max(met, key=lambda p: upper_bound(p.lost, p.measured), default=None)
    where, counted = f"`{stratum.name}`", (stratum.lost, stratum.measured)
    if pair and stratum.bound == upper_bound(pair.lost, pair.measured):
        where, counted = f"{where}, {pair.pair}", (pair.lost, pair.measured)
    return f"{where} ({stratum.path}): {counted[0]} of {counted[1]}"

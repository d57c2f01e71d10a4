"""From a record to findings, claims and the exit code. Pure: can be done again from the record alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary.canary.prompt import Position
from kvcanary.detect import (
    accounting,
    advisories,
    capacity,
    handoff,
    hardening,
    ownership,
    refusal,
)
from kvcanary.record.exchange import DECOYS, Exchange, Purpose
from kvcanary.record.run import CAPACITY_SUITE, RunRecord
from kvcanary.verdict.claims import Claim, ClaimName, ExitCode, Status, Stratum, Verdict
from kvcanary.verdict.detected import detected
from kvcanary.verdict.findings import FAILING, Finding, Severity
from kvcanary.verdict.headline import headline
from kvcanary.verdict.strata import leak_bound, strata_of
from kvcanary.verdict.waivers import apply_waivers

WARNINGS = frozenset(
    {
        "isolation/unverified-code",  # whoever pastes one must not be able to block a roll-out
        "availability/bystanders-starved",
        "identity/not-as-asked",  # an alias, mostly
        "availability/pool-not-returned",
        "availability/refusals-slow",
        "isolation/cache-shared-unasked",  # nobody promised that salts keep caches apart
        "soak/slower",
    }
)
"""Rules that never change a claim. Neither does a degraded finding about capacity: the pools are what the
workers say, whatever it warns of."""
CLAIM_OF_RULE = {
    "ownership": ClaimName.OWNERSHIP,
    "isolation": ClaimName.ISOLATION,
    "capacity": ClaimName.CAPACITY,
    "hardware": ClaimName.CAPACITY,
    "drift": ClaimName.CAPACITY,
    "advisory": ClaimName.CAPACITY,
    "refusal": ClaimName.REFUSAL,
    "accounting": ClaimName.ACCOUNTING,
    "first-token": ClaimName.ACCOUNTING,
    "availability": ClaimName.REFUSAL,
    "identity": ClaimName.OWNERSHIP,
    "output": ClaimName.OWNERSHIP,
    "continuity": ClaimName.OWNERSHIP,
    "replay": ClaimName.OWNERSHIP,
    "soak": ClaimName.OWNERSHIP,
}
"""Which claim a finding is about, by the family that its rule begins with."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a record amounts to."""

    findings: tuple[Finding, ...]
    verdict: Verdict


def judge(
    record: RunRecord,
    required: Sequence[ClaimName],
    known: Sequence[advisories.Advisory] = (),
) -> Judged:
    """Detect, claim, conclude. ``known``: faults of engines to look for in what ran."""
    found = apply_waivers(detected(record, known), record.info.waivers, record.info.started_at)
    strata = strata_of(record, found)
    decoys = [e for e in record.exchanges if e.purpose in DECOYS]
    state = _State(record, found, strata, decoys)
    claims = tuple(
        Claim(name=name, status=status, required=name in required, text=text + state.waived(name))
        for name, (status, text) in {
            ClaimName.OWNERSHIP: state.ownership(),
            ClaimName.ISOLATION: state.isolation(),
            ClaimName.CAPACITY: state.capacity(),
            ClaimName.REFUSAL: state.refusal(),
            ClaimName.ACCOUNTING: state.accounting(),
        }.items()
    )
    done = bool(record.exchanges) or record.info.suite == CAPACITY_SUITE
    status, code = _conclude(claims, sound=done and not record.stopped)
    verdict = Verdict(
        status=status,
        exit_code=code,
        headline=headline(status, claims, strata, found, record),
        claims=claims,
        strata=strata,
        decoys_sent=len(decoys),
        decoys_seen=sum(bool(e.decoy_seen) for e in decoys),
        holdings=capacity.holdings(record.facts) if record.facts else (),
        advice=hardening.advice(record.facts) if record.facts else (),
    )
    return Judged(found, verdict)


def unshown(
    exchanges: Sequence[Exchange],
) -> tuple[tuple[ownership.Group, tuple[Position, ...]], ...]:
    """Strata of readers with the parts of their prompts of which no answer showed that they were read."""
    found = []
    for group in ownership.measure(exchanges):
        read = [e for e in group.members if e.read and e.purpose is not Purpose.BYSTANDER]
        if any(e.purpose is Purpose.READER for e in read):
            asked = dict.fromkeys(e.asked for e in read)
            missing = tuple(p for p in asked if not any(e.kept for e in read if e.asked is p))
            found += [(group, missing)] if missing else []
    return tuple(found)


def _conclude(claims: Sequence[Claim], *, sound: bool) -> tuple[Status, ExitCode]:
    """``sound``: what was to be done was done, to the end. Else nothing passes."""
    if any(claim.status is Status.FAIL for claim in claims):
        return Status.FAIL, ExitCode.VIOLATION
    required = [claim for claim in claims if claim.required]
    if not (sound and required) or any(claim.status is Status.INCONCLUSIVE for claim in required):
        return Status.INCONCLUSIVE, ExitCode.INCONCLUSIVE
    return Status.PASS, ExitCode.PASS


class _State:
    """What each claim is judged from."""

    def __init__(
        self,
        record: RunRecord,
        found: Sequence[Finding],
        strata: Sequence[Stratum],
        decoys: Sequence[Exchange],
    ) -> None:
        self._record, self._strata, self._decoys = record, strata, decoys
        self._found = found
        self._readers = [s for s in strata if s.purpose in ("reader", "control", "bystander")]

    def _worst(self, claim: ClaimName) -> Finding | None:
        mine = (
            f
            for f in self._found
            if CLAIM_OF_RULE[f.rule.split("/")[0]] is claim
            and f.rule not in WARNINGS
            and not self._warns(f)
        )
        return min(mine, key=lambda f: f.waived is not None, default=None)

    def _failed(self, claim: ClaimName) -> tuple[Status, str] | None:
        """What the worst finding makes of a claim; a claim whose findings are all waived is judged as if
        they were not there."""
        worst = self._worst(claim)
        if worst is None or worst.waived:
            return None
        if worst.severity in FAILING:
            return Status.FAIL, worst.title
        return Status.INCONCLUSIVE, worst.title

    def waived(self, claim: ClaimName) -> str:
        """What is waived of a claim, to be said with its verdict."""
        mine = [f for f in self._found if f.waived and CLAIM_OF_RULE[f.rule.split("/")[0]] is claim]
        return "".join(f"; waived {f.waived} ({f.title})" for f in mine)

    def _unfinished(self) -> str | None:
        if self._record.stopped:
            return f"the run did not finish: {self._record.stopped}"
        if not self._record.exchanges:
            return "nothing was sent"
        changed = next(
            (
                f
                for f in self._found
                if f.rule.startswith("identity/") and f.rule not in WARNINGS and not f.waived
            ),
            None,
        )
        return changed.title if changed else None

    def _skipped(self) -> str | None:
        """A probe whose needs were not met has tested nothing, though there was something to test."""
        plan = self._record.plan
        for missing in plan.unmet if plan else ():
            if missing.applicable:
                return f"the probe `{missing.probe}` was not run: it needs {missing.need}, and {missing.reason}"
        return None

    def ownership(self) -> tuple[Status, str]:
        failed = self._failed(ClaimName.OWNERSHIP)
        if failed:
            return failed
        unfinished = self._unfinished()
        if unfinished:
            return Status.INCONCLUSIVE, unfinished
        unmeasured = [
            f"`{s.name}` ({s.measured} of {s.sent - s.refused} measured)"
            for s in self._readers
            if s.measured < s.sent - s.refused
        ]
        measured = [s for s in self._readers if s.measured and s.purpose != "bystander"]
        if not measured or not self._long_ones_tested():
            return Status.INCONCLUSIVE, self._nothing_measured()
        if unmeasured:
            return Status.INCONCLUSIVE, f"not all strata could be measured: {', '.join(unmeasured)}"
        if unknown := self._skipped() or self._unmet() or self._unshown():
            return Status.INCONCLUSIVE, unknown
        if short := self._bound_missed(measured):
            return Status.INCONCLUSIVE, short
        total = sum(s.measured for s in measured)
        slips = sum(s.lost for s in measured)
        longest = max(s.longest_tokens for s in measured)
        return Status.PASS, (
            f"{total - slips} of {total} answers show that they read their own head, middle or last page, "
            f"up to {longest:,} tokens"
            + (
                f"; {slips} lost a label, as this model does in good conditions too"
                if slips
                else ""
            )
            + self._not_asked()
        )

    def _not_asked(self) -> str:
        """A stratum too small for all three positions says nothing of the others."""
        said = ""
        for group in ownership.measure(self._record.exchanges):
            missing = [p for p in Position if all(e.asked is not p for e in group.measured)]
            if group.measured[:1] and group.measured[0].purpose is Purpose.READER and missing:
                said += f"; in `{group.name}` none was asked for the label at its {' or '.join(missing)}"
        return said

    def _long_ones_tested(self) -> bool:
        """A reader was measured; or all were refused as they had to be, and the control below the limit,
        then the longest that is served, was."""
        readers = [s for s in self._strata if s.purpose == "reader"]
        if any(s.measured for s in readers):
            return True
        facts = self._record.facts
        due = refusal.over_limit(self._record.exchanges, facts) if facts else ()
        sent = sum(s.sent for s in readers)
        refused = sum(e.outcome == "refused" for e in due)
        return bool(sent) and refused == sent

    def _bound_missed(self, measured: Sequence[Stratum]) -> str | None:
        """A suite may ask for a bound: too few answers, or too many slips, do not reach it."""
        wanted = self._record.info.bound
        if wanted is None:
            return None
        worst = max(measured, key=lambda s: s.bound or 1.0)
        if worst.bound is not None and worst.bound <= wanted:
            return None
        return (
            f"the suite wants a rate of bad answers below {wanted:.0%}; in `{worst.name}` it is shown to be "
            f"below {worst.bound or 1.0:.0%} ({worst.lost} of {worst.measured} bad)"
        )

    def _unmet(self) -> str | None:
        """Pairs of workers that no long prompt met say nothing."""
        topology = self._record.topology
        if topology is None or len(topology.pairs) < 2:
            return None
        if not topology.visible:
            return (
                f"{len(topology.pairs)} pairs of workers may serve a request, and which were met cannot be "
                "seen: let kvcanary read every worker's /metrics"
            )
        crowded = {e.group for e in self._record.exchanges if e.manner.crowded}
        for stratum in (s for s in self._strata if s.purpose == "reader" and s.name not in crowded):
            missing = [p.pair for p in stratum.pairs if p.lost == p.measured]
            if missing:
                met = len(stratum.pairs) - len(missing)
                return (
                    f"in `{stratum.name}` {met} of {len(stratum.pairs)} pairs of workers gave an answer of "
                    f"their own; none came from {', '.join(missing)}"
                )
        return None

    def _unshown(self) -> str | None:
        """A model that is weak with length says as little about its own pages there as about anybody's."""
        for group, positions in unshown(self._record.exchanges):
            return (
                f"in `{group.name}` no answer kept the label at its {' or '.join(positions)}: this model may "
                "not find it at that length, and whether those pages were its own was not shown"
            )
        return None

    def _nothing_measured(self) -> str:
        answered = [e for e in self._record.exchanges if e.answered]
        if answered and not any(e.read for e in answered):
            return (
                "every answer ended inside its reasoning before it came to the label: "
                "turn thinking off for this test"
            )
        readers = [e for e in self._record.exchanges if e.purpose is Purpose.READER]
        refused = [e for e in readers if e.outcome == "refused"]
        if readers and len(refused) == len(readers):
            limits = {e.refusal.limit_tokens for e in refused if e.refusal}
            named = ", ".join(f"{limit:,}" for limit in sorted(filter(None, limits)))
            return f"every long prompt was refused (limit named: {named or 'none'} tokens)"
        if not readers and answered:
            return (
                "no long prompt was in the plan: the budget (--tokens, --minutes, --tpm) bought none; "
                "`kvcanary plan` shows the prices"
            )
        if not any(e.kept for e in answered):
            return (
                "the model repeated none of its own labels, not even in short prompts: "
                "what it reads cannot be told from what it says"
            )
        return "no answer could be compared with a sound control group"

    def isolation(self) -> tuple[Status, str]:
        failed = self._failed(ClaimName.ISOLATION)
        if failed:
            return failed
        unfinished = self._unfinished()
        if unfinished:
            return Status.INCONCLUSIVE, unfinished
        seen = sum(bool(e.decoy_seen) for e in self._decoys)
        if not all(any(e.decoy_seen for e in self._decoys if e.purpose is p) for p in DECOYS):
            return Status.INCONCLUSIVE, (
                f"the positive control failed: {seen} of {len(self._decoys)} decoys came back and were "
                "recognised, so foreign text might not be seen either"
            )
        judged = [e for e in self._record.exchanges if e.answer_characters]
        if not self._long_ones_tested() and not any(e.purpose is Purpose.READER for e in judged):
            return Status.INCONCLUSIVE, self._nothing_measured()
        if unknown := self._skipped() or self._unmet():
            return Status.INCONCLUSIVE, unknown
        exposed = [
            s for s in self._strata if s.purpose in ("reader", "control") and s.exposed_tokens
        ]
        if not exposed:
            return Status.INCONCLUSIVE, (
                "no page that was read is known to have had another owner before: the fill was not bought "
                "or not reached, or the pool's size and use are unknown"
            )
        partly = [e.number for e in judged if not e.nulls.complete]
        if partly:
            return Status.INCONCLUSIVE, f"answers too large to be searched to the end: {partly}"
        silent = [
            s.name
            for s in self._readers
            if s.sent > s.refused and not any(e.group == s.name for e in judged)
        ]
        if silent:
            return Status.INCONCLUSIVE, f"no answer came in {', '.join(silent)}"
        simulated = [s for s in self._record.simulations if s.answered]
        recognised = sum(s.recognised for s in simulated)
        if not simulated:
            return Status.INCONCLUSIVE, (
                "no simulated leak was answered, so nobody knows whether this model would give one away"
            )
        if not recognised:
            return Status.INCONCLUSIVE, (
                f"this model gives nothing away: of {len(simulated)} simulated leaks none was recognised, "
                "so a real one might not be either (ownership does not depend on it)"
            )
        bound = leak_bound(self._record, self._strata)
        wanted = self._record.info.bound
        if wanted is not None and bound > wanted:
            return Status.INCONCLUSIVE, (
                f"the suite wants a rate of leaks below {wanted:.0%}; it is shown to be below {bound:.0%}"
            )
        return Status.PASS, (
            f"no text of another request in {len(judged)} answers; over pages that others had owned: "
            f"{', '.join(f'`{s.name}`' for s in exposed)}; {seen} of {len(self._decoys)} decoys and "
            f"{recognised} of {len(simulated)} simulated leaks recognised"
        )

    def capacity(self) -> tuple[Status, str]:
        facts = self._record.facts
        failed = self._failed(ClaimName.CAPACITY)
        if failed:
            return failed
        unknown = capacity.missing(facts) if facts else "the deployment was not asked"
        if facts is None or unknown:
            return Status.INCONCLUSIVE, f"not assessed: {unknown}"
        warned = [f.rule for f in self._found if self._warns(f)]
        warnings = f"; warnings: {', '.join(dict.fromkeys(warned))}" if warned else ""
        return Status.PASS, capacity.held(facts) + warnings

    @staticmethod
    def _warns(finding: Finding) -> bool:
        """About capacity, and no reason to fail or to doubt it."""
        about = CLAIM_OF_RULE[finding.rule.split("/")[0]]
        if finding.rule == "capacity/shared-slots":  # whether they share is not told
            return False
        return about is ClaimName.CAPACITY and finding.severity is Severity.DEGRADED

    def refusal(self) -> tuple[Status, str]:
        failed = self._failed(ClaimName.REFUSAL)
        if failed:
            return failed
        facts = self._record.facts
        due = refusal.over_limit(self._record.exchanges, facts) if facts else ()
        refused = [e for e in due if e.outcome == "refused"]
        if not due:
            return Status.INCONCLUSIVE, "not assessed: no prompt was longer than a known limit"
        if len(refused) < len(due):
            return Status.INCONCLUSIVE, f"only {len(refused)} of {len(due)} due refusals were seen"
        return (
            Status.PASS,
            f"{len(due)} of {len(due)} prompts over a worker's limit were refused cleanly",
        )

    def accounting(self) -> tuple[Status, str]:
        failed = self._failed(ClaimName.ACCOUNTING)
        if failed:
            return failed
        counted = [e for e in self._record.exchanges if accounting.off_by(e) is not None]
        unfinished = self._unfinished()
        if unfinished or not counted:
            return Status.INCONCLUSIVE, unfinished or "no usage to compare"
        usage = f"usage adds up for {len(counted)} answers"
        if self._record.facts is None or not self._record.facts.split:
            return Status.PASS, usage
        return self._across_workers(usage)

    def _across_workers(self, usage: str) -> tuple[Status, str]:
        """Where prefill and decode are told apart, their counters have to agree as well."""
        topology = self._record.topology
        if topology is None or not topology.visible:
            return Status.INCONCLUSIVE, (
                f"{usage}; what prefill and decode count cannot be seen: let kvcanary read every worker's "
                "/metrics (SGLang: --enable-metrics)"
            )
        accounts = handoff.accounts(self._record.windows, self._record.exchanges)
        known = [a for a in accounts if a.result is not handoff.Sum.NO_ACCOUNT]
        for account in known:
            if account.result is handoff.Sum.UNKNOWN:
                where = f"in `{account.window.group}` {account.why}"
                return Status.INCONCLUSIVE, f"{usage}; {where}"
        if not known:
            return (
                Status.INCONCLUSIVE,
                f"{usage}; no stage was counted at the workers from end to end",
            )
        stages = "one stage" if len(known) == 1 else f"{len(known)} stages"
        return Status.PASS, f"{usage}; prefill's and decode's counters agree in {stages}"

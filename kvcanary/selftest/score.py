"""The scorer: what a run found, against what the lab says has happened."""

from collections import Counter
from collections.abc import Collection, Sequence

from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord
from kvcanary.selftest.case import Case
from kvcanary.selftest.matrix import Detection, Result
from kvcanary.verdict.detected import detected
from kvcanary.verdict.findings import Finding, Severity

_SEVERITIES = list(Severity)


def scored(case: Case, record: RunRecord, hit: Collection[str]) -> Result:
    """``hit``: names (``X-Request-Id``) of the exchanges that the fault had a part in."""
    found = detected(record, ())
    named = {number for finding in found for number in finding.exchanges}
    struck = [e for e in record.exchanges if e.name in hit]
    timeline = _Timeline(record)
    return Result(
        case=case,
        exit_code=None if record.verdict is None else int(record.verdict.exit_code),
        stopped=record.stopped,
        seconds=timeline.seconds(len(record.exchanges)),
        exchanges=len(record.exchanges),
        prompt_tokens=timeline.prompt_tokens(len(record.exchanges)),
        hit=len(struck),
        named=sum(e.number in named for e in struck),
        detections=tuple(_detections(record, found, struck, timeline)),
    )


def _detections(
    record: RunRecord, found: Sequence[Finding], struck: Sequence[Exchange], timeline: "_Timeline"
) -> list[Detection]:
    made = []
    hit_by_probe = Counter(e.probe for e in struck)
    names = {e.name for e in struck}
    for rule in dict.fromkeys(f.rule for f in found):
        mine = [f for f in found if f.rule == rule]
        severity = min((f.severity for f in mine), key=_SEVERITIES.index)
        numbers = {number for f in mine for number in f.exchanges}
        members = [e for e in record.exchanges if e.number in numbers]
        for probe in dict.fromkeys(e.probe for e in members) if members else ("",):
            of_probe = [e for e in members if e.probe == probe]
            enough = timeline.enough_for(rule, {e.number for e in of_probe})
            hit = sum(e.name in names for e in of_probe)
            made.append(
                Detection(
                    probe=probe,
                    rule=rule,
                    severity=severity,
                    hit=hit_by_probe[probe],
                    named=hit,
                    others=len(of_probe) - hit,
                    seconds=timeline.seconds(enough),
                    prompt_tokens=timeline.prompt_tokens(enough),
                )
            )
    return made


class _Timeline:
    """A record as it grew: its exchanges in the order in which they ended."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._ended = sorted(record.exchanges, key=_end)
        self._began = min((e.started_at for e in record.exchanges), default=0.0)

    def seconds(self, count: int) -> float:
        """From the first request to the end of the ``count``-th."""
        return _end(self._ended[count - 1]) - self._began if count else 0.0

    def prompt_tokens(self, count: int) -> int:
        """Of all requests that had been sent by then."""
        until = self._began + self.seconds(count)
        return sum(e.length_tokens for e in self._ended if count and e.started_at <= until)

    def enough_for(self, rule: str, numbers: Collection[int]) -> int:
        """With how many exchanges the rule speaks of one of those (of none: speaks at all).

        Found by halving, as if it never fell silent again.
        """
        low, high = 0, len(self._ended)
        while low < high:
            middle = (low + high) // 2
            found = [f for f in detected(self._until(middle), ()) if f.rule == rule]
            if any(not numbers or set(numbers).intersection(f.exchanges) for f in found):
                high = middle
            else:
                low = middle + 1
        return high

    def _until(self, count: int) -> RunRecord:
        exchanges = tuple(self._ended[:count])
        numbers = {e.number for e in exchanges}
        windows = tuple(w for w in self._record.windows if numbers.issuperset(w.exchanges))
        after = self._record.facts_after if count == len(self._ended) else None
        kept = {"exchanges": exchanges, "windows": windows, "facts_after": after}
        return self._record.model_copy(update=kept)


def _end(exchange: Exchange) -> float:
    return exchange.started_at + exchange.total_seconds

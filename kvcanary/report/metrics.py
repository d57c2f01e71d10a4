"""The last run as Prometheus metrics.

All are gauges about one run, with the labels ``target`` and ``suite``. Every family always has a sample: a
pushgateway keeps what is not pushed again, and an old figure must not stand for an unknown one. What is
unknown is NaN. Labels hold names from fixed lists, of probes, and what a person typed: no addresses, no text.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kvcanary.record.exchange import Exchange
from kvcanary.record.run import RunRecord
from kvcanary.report.figures import Figures, figures
from kvcanary.report.printable import printable
from kvcanary.verdict.claims import ClaimName, Status
from kvcanary.verdict.findings import Severity

LAST_SUCCESS = "kvcanary_last_success_timestamp_seconds"
LENGTHS = (1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
"""Upper ends of the classes of prompt lengths, in tokens."""
MAX_LABEL = 80
MAX_VALUES = 64
"""Values of one label; what is beyond counts as ``other``."""
OTHER = "other"
NONE = "none"
_RULE = re.compile(r"[a-z-]{1,40}/[a-z-]{1,60}")
_PROBE = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
_ROLE = re.compile(r"prefill|decode|unified")

Values = Mapping[Any, float | None]
"""By the values of the labels, a tuple of strings."""


def identity(record: RunRecord) -> dict[str, str]:
    """The labels that tell this run's deployment and suite from others. Of a URL only host and port."""
    target = record.info.target
    _, is_url, rest = target.partition("://")
    if is_url:
        host = re.split(r"[/?#]", rest)[0].rpartition("@")[2]
        target = re.sub(r"[^A-Za-z0-9.:_\[\]-].*", "", host)
    return {"target": _label(target), "suite": _label(record.info.suite)}


def registry(record: RunRecord, last_success: float | None = None) -> CollectorRegistry:
    """The metrics of this record. ``last_success``: when an earlier run passed, where this one did not."""
    held = CollectorRegistry(auto_describe=False)
    held.register(_Run(record, last_success))
    return held


class _Run(Collector):
    def __init__(self, record: RunRecord, last_success: float | None) -> None:
        self._record = record
        self._last_success = last_success

    def collect(self) -> Iterator[Metric]:
        own = identity(self._record)
        for name, help_, labels, values in _families(self._record, self._last_success):
            family = GaugeMetricFamily(name, help_, labels=[*own, *labels])
            for at, value in (values or {(NONE,) * len(labels): None}).items():
                family.add_metric([*own.values(), *at], math.nan if value is None else value)
            yield family


Family = tuple[str, str, Sequence[str], Values]


def _families(record: RunRecord, last_success: float | None) -> Iterator[Family]:
    sums = figures(record)
    yield from _about_run(record, sums, last_success)
    yield from _about_verdict(record)
    yield from _about_strata(record)
    yield from _about_capacity(record)
    yield _first_tokens(record.exchanges)


def _about_run(record: RunRecord, sums: Figures, last_success: float | None) -> Iterator[Family]:
    info = record.info
    told = (_label(info.kvcanary_version), _label(info.model), _label(info.api))
    yield "kvcanary_run_info", "What was run.", ("version", "model", "api"), {told: 1}
    ended = sums.ended_at or info.started_at
    for name, help_, value in (
        ("last_run_timestamp_seconds", "When the last run ended, Unix time.", ended),
        ("run_duration_seconds", "How long the last run took.", sums.seconds),
        ("run_requests", "Requests that the last run sent.", sums.requests),
        ("run_prompt_tokens", "Prompt tokens that the last run sent.", sums.prompt_tokens),
        ("run_completion_tokens", "Tokens that it was answered.", sums.completion_tokens),
    ):
        yield f"kvcanary_{name}", help_, (), {(): value}
    passed = record.verdict is not None and record.verdict.status is Status.PASS
    success = ended if passed else last_success
    if success is not None:  # else an earlier one stays
        yield LAST_SUCCESS, "When a run last passed, Unix time.", (), {(): success}


def _about_verdict(record: RunRecord) -> Iterator[Family]:
    verdict = record.verdict
    status = verdict.status if verdict else Status.INCONCLUSIVE
    code = int(verdict.exit_code) if verdict else 3
    yield "kvcanary_verdict", "1 for what the last run concluded.", ("status",), _states(status)
    yield "kvcanary_exit_code", "Exit code of the last run.", (), {(): code}
    known = {claim.name: claim for claim in verdict.claims} if verdict else {}
    states = {
        (name.value, *state): value
        for name in ClaimName
        for state, value in _states(
            known[name].status if name in known else Status.INCONCLUSIVE
        ).items()
    }
    yield "kvcanary_claim", "1 for the state of each claim.", ("claim", "status"), states
    required = {(n.value,): float(n in known and known[n].required) for n in ClaimName}
    yield "kvcanary_claim_required", "Whether the suite requires the claim.", ("claim",), required
    counted = Counter(f.severity for f in record.findings if not f.waived)
    severities = {(s.value,): float(counted[s]) for s in Severity}
    help_ = "Findings of the last run that are not waived, by severity."
    yield "kvcanary_findings", help_, ("severity",), severities
    rules = Counter(_known(f.rule, _RULE) for f in record.findings if not f.waived)
    help_ = "Findings of the last run that are not waived, by rule."
    yield "kvcanary_rule_findings", help_, ("rule",), _bounded(rules) or {(NONE,): 0}
    waived = sum(f.waived is not None for f in record.findings)
    yield "kvcanary_waived_findings", "Findings that somebody answers for.", (), {(): waived}


def _states(status: Status) -> dict[tuple[str, ...], float]:
    return {(one.value,): float(one is status) for one in Status}


def _about_strata(record: RunRecord) -> Iterator[Family]:
    strata = record.verdict.strata if record.verdict else ()
    counts: Counter[tuple[str, str]] = Counter()
    bounds: dict[str, list[float]] = defaultdict(list)
    exposed: dict[str, list[float]] = defaultdict(list)
    for stratum in strata:
        probe = _known(stratum.name.partition("/")[0], _PROBE)
        counts[probe, "measured"] += stratum.measured
        counts[probe, "lost"] += stratum.lost
        counts[probe, "foreign"] += stratum.foreign
        bounds[probe] += [] if stratum.bound is None else [stratum.bound]
        exposed[probe] += [] if stratum.exposed_tokens is None else [stratum.exposed_tokens]
    shown = dict(list(counts.items())[: 3 * MAX_VALUES])
    help_ = "Answers of the last run: measured, without their label, with text of others."
    yield "kvcanary_answers", help_, ("probe", "result"), {k: float(v) for k, v in shown.items()}
    help_ = "Upper 95 % bound of the rate of bad answers, of the probe's worst stratum."
    yield "kvcanary_bad_answers_bound_ratio", help_, ("probe",), _worst(bounds)
    help_ = (
        "Tokens' worth of pages that had been others' before, in the probe's most exposed stratum."
    )
    yield "kvcanary_exposed_tokens", help_, ("probe",), _worst(exposed)
    sent = record.verdict.decoys_sent if record.verdict else 0
    seen = record.verdict.decoys_seen if record.verdict else 0
    help_ = "Part of the decoys (positive control) that were recognised."
    yield "kvcanary_decoys_recognised_ratio", help_, (), {(): seen / sent if sent else None}


def _worst(values: Mapping[str, Sequence[float]]) -> Values:
    return {(key,): max(some, default=None) for key, some in list(values.items())[:MAX_VALUES]}


def _about_capacity(record: RunRecord) -> Iterator[Family]:
    context = record.facts.context_tokens if record.facts else None
    pools: dict[str, list[int | None]] = defaultdict(list)
    for holding in record.verdict.holdings if record.verdict else ():
        pools[_known(holding.role, _ROLE)].append(holding.pool_tokens)
    smallest = {role: _least(some) for role, some in pools.items()}
    yield "kvcanary_context_tokens", "The longest request that is promised.", (), {(): context}
    help_ = "Smallest KV pool of a worker or rank; NaN where one is unknown."
    yield "kvcanary_pool_tokens", help_, ("role",), {(r,): v for r, v in smallest.items()}
    help_ = "Smallest KV pool of a worker or rank, as a part of the promised context."
    ratios = {(r,): v / context if v is not None and context else None for r, v in smallest.items()}
    yield "kvcanary_capacity_ratio", help_, ("role",), ratios
    window = record.facts.danger_window if record.facts else None
    width = window.last_tokens - window.first_tokens + 1 if window else 0
    help_ = "How many prompt lengths prefill refuses and decode takes."
    yield "kvcanary_danger_window_tokens", help_, (), {(): width if record.facts else None}


def _least(pools: Iterable[int | None]) -> float | None:
    """Unknown if one is: it may be the smallest."""
    known = list(pools)
    return None if None in known else min(p for p in known if p is not None)


def _first_tokens(exchanges: Sequence[Exchange]) -> Family:
    by_length: dict[str, list[float]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.first_token_seconds is not None:
            by_length[_length_class(exchange.length_tokens)].append(exchange.first_token_seconds)
    values = {
        (length, name): of(seconds)
        for length, seconds in by_length.items()
        for name, of in (("median", median), ("max", max))
    }
    help_ = "Time to the first token, by prompt length (the upper end of its class, in tokens)."
    return "kvcanary_first_token_seconds", help_, ("length", "statistic"), values


def _length_class(tokens: int) -> str:
    return next((str(end) for end in LENGTHS if tokens <= end), "more")


def _label(text: str) -> str:
    return printable(text[:MAX_LABEL]) or OTHER


def _known(name: str, pattern: re.Pattern[str]) -> str:
    return name if pattern.fullmatch(name) else OTHER


def _bounded(counted: Mapping[str, int]) -> Values:
    return {(key,): float(count) for key, count in list(counted.items())[:MAX_VALUES]}

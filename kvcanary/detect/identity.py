"""Identity: was it one deployment that answered, from the first request to the last?

A roll-out, a restart, a fallback model or a response cache in the middle of a run means that its answers
do not speak of one thing. Such a run may still show a leak; it cannot show that there is none.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from kvcanary.deployment.facts import Facts, Worker
from kvcanary.detect.unusual import unusual
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.verdict.findings import Finding, Severity, stratum_of

_REMEDY = "Run again when nothing is being rolled out, and without fallbacks and response caches."


def findings(
    exchanges: Sequence[Exchange], before: Facts | None, after: Facts | None
) -> tuple[Finding, ...]:
    """Warnings, each of which keeps a run from passing."""
    sound = [e for e in exchanges if e.purpose is not Purpose.SPOILT]  # a wrong model, on purpose
    found = [
        _other_model(sound),
        _not_as_asked(sound),
        *_mixed(exchanges),
        _other_configuration(exchanges),
        _repeated(exchanges) or _cached(exchanges),
        _changed(before, after),
    ]
    return tuple(finding for finding in found if finding)


def _other_model(exchanges: Sequence[Exchange]) -> Finding | None:
    """Most answers name one model; an alias of the one asked for is fine if it is always the same."""
    named = [e for e in exchanges if e.answerer.model]
    others = [e for group in _by_asked(named) for e in _unusual(group)]
    if not others:
        return None
    return _finding(
        "identity/another-model",
        f"{len(others)} of {len(named)} answers came from another model than the rest",
        [f"request {e.number} ({e.group}, {e.length_tokens:,} tokens)" for e in others],
        others,
    )


def _unusual(named: Sequence[Exchange]) -> list[Exchange]:
    usual = Counter(e.answerer.model for e in named).most_common(1)[0][0]
    return [e for e in named if e.answerer.model != usual]


def _by_asked(exchanges: Sequence[Exchange]) -> list[list[Exchange]]:
    """Tenants may have adapters of their own: only answers to one and the same model can be compared."""
    groups: dict[str | None, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        groups[exchange.answerer.asked].append(exchange)
    return list(groups.values())


def _not_as_asked(exchanges: Sequence[Exchange]) -> Finding | None:
    """All answers name one model, and not the one asked for: an alias, unless it is served beside it."""
    other = [e for e in exchanges if e.answerer.as_asked is False]
    served = [e for e in other if e.answerer.another_served]
    if not other:
        return None
    named = [e for e in exchanges if e.answerer.model]
    if served:
        return _finding(
            "identity/another-adapter",
            f"{len(served)} of {len(named)} answers name another model or adapter that is served here, "
            "not the one asked for",
            [f"request {e.number} ({e.group}, {e.length_tokens:,} tokens)" for e in served],
            served,
        )
    return _finding(
        "identity/not-as-asked",
        f"{len(other)} of {len(named)} answers name another model than was asked for: an alias, or a fallback",
        [f"first seen with request {other[0].number} ({other[0].group})"],
        other[:1],
    )


def _mixed(exchanges: Sequence[Exchange]) -> list[Finding]:
    """Answers whose parts do not name one response, where those in good conditions do (a11)."""
    return [
        _finding(
            "identity/mixed-response",
            f"{len(one.having)} of {one.answers} answers in `{one.group}` are made of parts of several "
            "responses: two ids or models in one stream, or an index that nobody asked for",
            [f"request {e.number} ({e.length_tokens:,} tokens)" for e in one.having],
            one.having,
        )
        for one in unusual(exchanges, lambda e: e.answerer.mixed)
    ]


def _other_configuration(exchanges: Sequence[Exchange]) -> Finding | None:
    """Replicas may differ all the time; what tells is that the old ones are gone, and the new ones new."""
    told = [e for e in exchanges if e.answerer.configuration]
    changes = (_clean_change(group) or _slow_change(group) for group in _by_asked(told))
    changed = next(filter(None, changes), None)
    if changed is None:
        return None
    return _finding(
        "identity/configuration-changed",
        "the deployment's configuration (system_fingerprint) changed during the run",
        [f"first seen with request {changed.number} ({changed.group})"],
        [changed],
    )


def _clean_change(told: Sequence[Exchange]) -> Exchange | None:
    """The first answer after whose end no request is answered as before, however late that is."""
    first: dict[str | None, Exchange] = {}
    last_start: dict[str | None, float] = {}
    for exchange in sorted(told, key=_end):
        configuration = exchange.answerer.configuration
        first.setdefault(configuration, exchange)
        started = max(exchange.started_at, last_start.get(configuration, exchange.started_at))
        last_start[configuration] = started
    old_until = -math.inf
    for configuration, exchange in first.items():
        if math.isfinite(old_until) and old_until < _end(exchange):
            return exchange
        old_until = max(old_until, last_start[configuration])
    return None


def _end(exchange: Exchange) -> float:
    return exchange.started_at + exchange.total_seconds


def _slow_change(told: Sequence[Exchange]) -> Exchange | None:
    """A roll-out in which old and new answer side by side for a while."""
    quarter = len(told) // 4
    first = {e.answerer.configuration for e in told[:quarter]}
    last = {e.answerer.configuration for e in told[-quarter:]} if quarter else first
    if first & last or not first:
        return None
    return next(e for e in told if e.answerer.configuration not in first)


def _repeated(exchanges: Sequence[Exchange]) -> Finding | None:
    """Different prompts that had one response: a response cache, or mixed-up answers."""
    shared: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.answerer.response:
            shared[exchange.answerer.response].append(exchange)
    twice = [es for es in shared.values() if len({e.text for e in es}) > 1]
    if not twice:
        return None
    return _finding(
        "identity/repeated-response",
        "different prompts had responses with the same id",
        [f"requests {', '.join(str(e.number) for e in es)}" for es in twice],
        [e for es in twice for e in es],
    )


def _cached(exchanges: Sequence[Exchange]) -> Finding | None:
    """The same prompt, sent twice on purpose, that had one response: something answers for the model."""
    shared: dict[tuple[int, str], list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.answerer.response:
            shared[exchange.text, exchange.answerer.response].append(exchange)
    twice = [es for es in shared.values() if len(es) > 1]
    if not twice:
        return None
    return _finding(
        "identity/repeated-response",
        "a response cache answers for the model: the same prompt had the very same response twice",
        [f"request {es[0].number} ({es[0].group})" for es in twice],
        [e for es in twice for e in es],
    )


def _changed(before: Facts | None, after: Facts | None) -> Finding | None:
    if before is None or after is None:
        return None
    old = {(w.role, w.url): w for w in before.workers}
    new = {(w.role, w.url): w for w in after.workers}
    lines = [f"{role} worker {url} is gone" for role, url in old.keys() - new.keys()]
    lines += [f"{role} worker {url} is new" for role, url in new.keys() - old.keys()]
    for key in old.keys() & new.keys():
        lines += _differences(old[key], new[key])
    if not lines:
        return None
    return _finding(
        "identity/deployment-changed",
        "the deployment changed during the run: workers came, went, restarted or were changed",
        sorted(lines),
        [],
    )


def _differences(old: Worker, new: Worker) -> list[str]:
    """A worker that stopped telling is no change; one that tells something else is."""
    lines = []
    for field, word in (
        ("version", "version"),
        ("pool_tokens", "pool"),
        ("limit_tokens", "limit"),
        ("context_tokens", "context limit"),
        ("started_at", "start"),
    ):
        was, now = getattr(old, field), getattr(new, field)
        if None not in (was, now) and was != now:
            lines.append(f"{old.role} worker {old.url}: {word} was {was}, is {now}")
    return lines


def _finding(rule: str, title: str, lines: Sequence[str], exchanges: Sequence[Exchange]) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.DEGRADED,
        stratum=stratum_of((e.group for e in exchanges), "deployment"),
        title=title,
        evidence=tuple(lines),
        remedy=_REMEDY,
        exchanges=tuple(e.number for e in exchanges),
    )

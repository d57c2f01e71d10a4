"""Limits that differ: what one worker refuses, another waits for, and what is cut without a word."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from kvcanary.deployment.facts import Facts, Role, SwitchName, Worker
from kvcanary.detect import remedies
from kvcanary.verdict.findings import Finding, Severity

RESERVE = 8
"""Tokens below the context limit that an engine may keep for itself (SGLang accepts ``context - 7``)."""
FRONT_DOOR = "/v1/models"
"""Begins the source of a context limit that the front door itself advertises."""


def findings(facts: Facts, short: Collection[str]) -> tuple[Finding, ...]:
    """``short``: addresses of workers whose pool is below the context, which explains their limits."""
    found = [
        _context_below(facts),
        _contexts_differ(facts),
        _context_above(facts),
        _limit_below(facts, short),
        _limits_differ(facts, short),
        *_windows(facts),
        _truncation(facts),
    ]
    return tuple(finding for finding in found if finding)


def _finding(
    rule: str,
    title: str,
    lines: Collection[str],
    remedy: str,
    workers: Iterable[Worker],
    *,
    warns: bool = False,
) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.DEGRADED if warns else Severity.CAPACITY,
        stratum="capacity",
        title=title,
        evidence=tuple(lines),
        remedy=remedy,
        workers=tuple(dict.fromkeys(worker.url for worker in workers)),
    )


def _context_below(facts: Facts) -> Finding | None:
    context = facts.context_tokens
    lower = [
        w for w in facts.workers if context and w.context_tokens and w.context_tokens < context
    ]
    if not lower:
        return None
    least = min(w.context_tokens or 0 for w in lower)
    return _finding(
        "capacity/context-below-promise",
        f"workers enforce a context of {least:,} tokens, less than the {context:,} that are promised",
        [_context(w) for w in lower],
        f"Promise {least:,} tokens, or start the workers with the promised length "
        f"({remedies.context_flag(lower[0].engine, context or 0)}). The promise comes from "
        f"{facts.context_source}.",
        lower,
    )


def _contexts_differ(facts: Facts) -> Finding | None:
    told = [w for w in facts.workers if w.context_tokens]
    contexts = {w.context_tokens or 0 for w in told}
    if len(contexts) < 2:
        return None
    wanted = facts.context_tokens or max(contexts)
    return _finding(
        "capacity/contexts-differ",
        "workers of one deployment enforce different context limits",
        [_context(w) for w in told],
        f"Start every worker with the same context length "
        f"({remedies.context_flag(told[0].engine, wanted)}).",
        told,
    )


def _context_above(facts: Facts) -> Finding | None:
    """Workers that take more than the front door advertises: nothing but the front door says no."""
    context = facts.context_tokens
    if context is None or not facts.context_source.startswith(FRONT_DOOR):
        return None
    higher = [w for w in facts.workers if w.context_tokens and w.context_tokens > context]
    if not higher:
        return None
    return _finding(
        "capacity/context-above-promise",
        f"workers enforce a context of {max(w.context_tokens or 0 for w in higher):,} tokens, more than "
        f"the {context:,} of the front door",
        [_context(w) for w in higher] + [f"front door: {context:,} ({facts.context_source})"],
        "Start the workers with the front door's context length, so that what it lets through by mistake "
        f"is refused ({remedies.context_flag(higher[0].engine, context)}).",
        higher,
        warns=True,
    )


def _context(worker: Worker) -> str:
    return (
        f"{worker.role} worker {worker.url}: context limit {worker.context_tokens:,} "
        f"({worker.told_by('context_tokens')})"
    )


def _limit(worker: Worker) -> str:
    return (
        f"{worker.role} worker {worker.url}: accepts prompts up to {worker.limit_tokens:,} "
        f"({worker.told_by('limit_tokens')})"
    )


def _limit_below(facts: Facts, short: Collection[str]) -> Finding | None:
    """Prompts that are promised and refused, though pool and context limit are large enough or unknown."""
    promised = _promised_prompt(facts)
    lower = [w for w in facts.workers if w.url not in short and accepts_too_little(w, facts)]
    if promised is None or not lower:
        return None
    least = min(w.limit_tokens or 0 for w in lower)
    return _finding(
        "capacity/limit-below-promise",
        f"workers accept prompts up to {least:,} tokens only, and {promised:,} are promised",
        [_limit(w) for w in lower],
        f"Raise the workers' prompt limit to {promised:,} tokens, or promise a context of "
        f"{least + (facts.output_tokens or 0):,}.",
        lower,
    )


def accepts_too_little(worker: Worker, facts: Facts) -> bool:
    """Whether it refuses prompts that are promised, though its context limit is large enough or unknown."""
    context, promised = facts.context_tokens, _promised_prompt(facts)
    if context is None or promised is None or worker.limit_tokens is None:
        return False
    enough = worker.context_tokens is None or worker.context_tokens >= context
    return enough and worker.limit_tokens < promised


def _promised_prompt(facts: Facts) -> int | None:
    """The longest prompt that customers may expect to be served."""
    context = facts.context_tokens
    return None if context is None else context - max(facts.output_tokens or 0, RESERVE)


def _limits_differ(facts: Facts, short: Collection[str]) -> Finding | None:
    """Replicas of one role with one context limit: whether a prompt is served depends on its route."""
    alike: dict[tuple[Role, int | None], list[Worker]] = defaultdict(list)
    for worker in facts.workers:
        if worker.limit_tokens is not None and worker.url not in short:
            alike[worker.role, worker.context_tokens].append(worker)
    differing = [ws for ws in alike.values() if len({w.limit_tokens for w in ws}) > 1]
    if not differing:
        return None
    workers = [w for ws in differing for w in ws]
    least = min(w.limit_tokens or 0 for w in workers)
    most = max(w.limit_tokens or 0 for w in workers)
    return _finding(
        "capacity/limits-differ",
        f"{workers[0].role} workers accept different lengths: whether a prompt of {least + 1:,} to {most:,} "
        "tokens is served depends on its route",
        [_limit(w) for w in workers],
        remedies.alike(min(workers, key=lambda w: w.limit_tokens or 0), least),
        workers,
    )


def _windows(facts: Facts) -> Iterator[Finding]:
    """Lengths that one role refuses while the other takes them, within the promise and beyond it."""
    for refuser, taker in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        window = facts.window(refuser, taker)
        if window is None:
            continue
        refusing = min(_told(facts, refuser), key=lambda w: w.limit_tokens or 0)
        taking = max(_told(facts, taker), key=lambda w: w.limit_tokens or 0)
        lines = [_limit(refusing), _limit(taking), _what_follows(refuser)]
        context = facts.context_tokens
        inside = window.first_tokens <= (context or window.last_tokens)
        if inside:
            last = min(window.last_tokens, context or window.last_tokens)
            yield _finding(
                "capacity/danger-window",
                f"danger window: prompts of {window.first_tokens:,} to {last:,} tokens are refused by "
                f"{refuser} and taken by {taker}",
                lines,
                remedies.same_limit(refusing, window.first_tokens - 1),
                (refusing, taking),
            )
        else:
            yield _finding(
                "capacity/window-beyond-promise",
                f"beyond the promised {context:,} tokens, prompts of {window.first_tokens:,} to "
                f"{window.last_tokens:,} are refused by {refuser} and taken by {taker}",
                lines,
                f"Keep prompts of more than {context:,} tokens out at the front door. "
                + remedies.same_limit(refusing, window.first_tokens - 1),
                (refusing, taking),
                warns=True,
            )


def _what_follows(refuser: Role) -> str:
    if refuser is Role.PREFILL:
        return (
            "decode waits for pages that prefill will not compute: where the refusal does not end the "
            "request, it reads stale ones (SGLang issue 30233)"
        )
    return "prefill computes pages that decode will not take: the request hangs until a time-out"


def _told(facts: Facts, role: Role) -> list[Worker]:
    return [w for w in facts.workers if w.role is role and w.limit_tokens is not None]


def _truncation(facts: Facts) -> Finding | None:
    """Prompts that are too long are cut and answered. Within the promise that is a wrong answer."""
    cutting = [
        w
        for w in facts.workers
        if any(s.name is SwitchName.NO_AUTO_TRUNCATE and s.on is False for s in w.switches)
    ]
    if not cutting:
        return None
    context = facts.context_tokens
    room = [n for w in cutting for n in (w.limit_tokens, w.pool_tokens) if n is not None]
    inside = context is not None and bool(room) and min(room) < context - RESERVE
    flags = {s.flag for w in cutting for s in w.switches if s.name is SwitchName.NO_AUTO_TRUNCATE}
    flag = next((f for f in sorted(flags) if f), "")
    return _finding(
        "capacity/silent-truncation",
        "workers cut prompts that are too long instead of refusing them"
        + (f", from {min(room):,} tokens on: within the promise" if inside else ""),
        [
            f"{w.role} worker {w.url} ({w.engine}) truncates: status 200, part of the prompt unread"
            for w in cutting
        ],
        f"{flag[:1].upper()}{flag[1:]}."
        if flag
        else "This engine cannot be told to refuse: refuse at the front door what is longer than its context.",
        cutting,
        warns=not inside,
    )

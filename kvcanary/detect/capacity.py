"""Capacity: can every worker hold the longest request that the deployment promises?

A capacity for one request is a minimum over all workers and DP ranks: never a sum, and never known while
one of them is unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvcanary.deployment.facts import Facts, Gpu, Role, Worker
from kvcanary.detect import limits, remedies
from kvcanary.record.exchange import Exchange
from kvcanary.verdict.claims import Holding, Status
from kvcanary.verdict.findings import Finding, Severity, stratum_of

NAMED = 3
"""Workers that a sentence names before it says how many more there are."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV pool of one worker (``name``: its short one), or of one of its DP ranks; None where it is
    not known."""

    name: str
    worker: Worker
    rank: int | None
    tokens: int | None
    used_tokens: int | None

    @property
    def usable_tokens(self) -> int | None:
        """What can be handed out: whole pages."""
        page = self.worker.page_tokens or 1
        return None if self.tokens is None else self.tokens // page * page

    def __str__(self) -> str:
        """Whose it is, in words."""
        rank = "" if self.rank is None else f", DP rank {self.rank}"
        return f"{self.worker.role} worker {self.worker.url}{rank}"


def pools(facts: Facts) -> tuple[Pool, ...]:
    """Every pool that a request may meet.

    A worker may hold less than any of its ranks tells, by the limit that it enforces: then that counts.
    """
    found: list[Pool] = []
    for name, worker in zip(facts.names, facts.workers, strict=True):
        if not worker.ranks:
            found.append(Pool(name, worker, None, worker.pool_tokens, worker.used_tokens))
            continue
        known = [r.pool_tokens for r in worker.ranks if r.pool_tokens is not None]
        enforced = worker.pool_tokens
        capped = enforced is not None and bool(known) and enforced < min(known)
        for rank in worker.ranks:
            tokens = enforced if capped and rank.pool_tokens is not None else rank.pool_tokens
            number = rank.rank if len(worker.ranks) > 1 else None
            found.append(Pool(name, worker, number, tokens, rank.used_tokens))
    return tuple(found)


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Whatever keeps a request that was promised from being served, as far as facts tell."""
    short = _short(facts)
    found = [
        _pool_below(short, facts),
        _no_room(facts),
        _shared_slots(facts),
        *limits.findings(facts, {pool.worker.url for pool in short}),
    ]
    return tuple(finding for finding in found if finding)


def holdings(facts: Facts) -> tuple[Holding, ...]:
    """Each pool with its verdict, in the order of the workers."""
    return tuple(
        Holding(
            worker=pool.name,
            url=pool.worker.url,
            role=pool.worker.role.value,
            rank=pool.rank,
            pool_tokens=pool.tokens,
            limit_tokens=pool.worker.limit_tokens,
            page_tokens=pool.worker.page_tokens,
            used_tokens=pool.used_tokens,
            source=pool.worker.told_by("pool_tokens"),
            status=status,
            note=note,
        )
        for pool in pools(facts)
        for status, note in (_holds(pool, facts),)
    )


def missing(facts: Facts) -> str | None:
    """Why capacity is not assessed; None where every pool of each role is known."""
    promise = "the promised context limit is unknown. Give it with --context"
    if not facts.workers:
        return (
            "no worker is known. Let kvcanary reach the router's /workers and what each worker tells "
            "(SGLang: /server_info, vLLM: /metrics), or list the workers in a deployment file"
            + (f"; and {promise}" if facts.context_tokens is None else "")
        )
    if facts.context_tokens is None:
        return promise
    roles = {worker.role for worker in facts.workers}
    if Role.UNIFIED not in roles:
        for role in (Role.PREFILL, Role.DECODE):
            if role not in roles:
                return f"no {role} worker is known. List it in a deployment file"
    unknown = [pool for pool in pools(facts) if pool.tokens is None]
    if not unknown:
        return None
    return (
        f"{len(unknown)} of {len(pools(facts))} pools are unknown ({_named(unknown)}). One of them may be "
        "the smallest"
    )


def assessed(facts: Facts) -> bool:
    """Whether every pool is known: one unknown worker makes the whole unknown."""
    return missing(facts) is None


def held(facts: Facts) -> str:
    """What a pass says: the smallest pool beside the promise."""
    least = min((p for p in pools(facts) if p.tokens is not None), key=lambda p: p.tokens or 0)
    context = facts.context_tokens or 0
    if (least.tokens or 0) < context:
        return f"the smallest pool holds {least.tokens:,} of {context:,} tokens, which is waived"
    return (
        f"every worker's pool ({least.tokens:,} tokens or more) holds the context limit "
        f"({context:,}, {facts.context_source})"
    )


def refused_within_promise(
    exchanges: Sequence[Exchange], facts: Facts | None
) -> tuple[Finding, ...]:
    """Clean refusals of requests that the promised context has room for: honest, and a broken promise."""
    context = facts.context_tokens if facts else None
    if context is None:
        return ()
    refused = [
        e
        for e in exchanges
        if e.outcome == "refused"
        and e.planned_tokens
        and e.planned_tokens + e.max_tokens <= context
    ]
    if not refused:
        return ()
    named_limits = sorted(
        {e.refusal.limit_tokens for e in refused if e.refusal and e.refusal.limit_tokens}
    )
    named = f"; limit named: {', '.join(f'{n:,}' for n in named_limits)}" if named_limits else ""
    return (
        Finding(
            rule="capacity/refused-within-promise",
            severity=Severity.CAPACITY,
            stratum=stratum_of((e.group for e in refused), "capacity"),
            title=f"{len(refused)} requests within the promised context ({context:,} tokens) were refused",
            evidence=tuple(
                f"request {e.number} ({e.group}): {e.planned_tokens:,} tokens and {e.max_tokens} of output, "
                f"HTTP {e.status}{named}"
                for e in refused
            ),
            remedy="Promise what is served: lower the context limit of the front door to the limit that the "
            "refusals name, or give the workers the memory.",
            exchanges=tuple(e.number for e in refused),
        ),
    )


def _short(facts: Facts) -> tuple[Pool, ...]:
    """Pools below the promised context."""
    context = facts.context_tokens
    if context is None:
        return ()
    return tuple(p for p in pools(facts) if p.tokens is not None and p.tokens < context)


def _holds(pool: Pool, facts: Facts) -> tuple[Status, str]:
    worker, promised = pool.worker, facts.context_tokens
    if pool.tokens is None:
        return Status.INCONCLUSIVE, "pool unknown"
    if promised is None:
        return Status.INCONCLUSIVE, "promise unknown"
    if pool.tokens < promised:
        return Status.FAIL, f"{promised - pool.tokens:,} short"
    if worker.context_tokens is not None and worker.context_tokens < promised:
        return Status.FAIL, f"context {worker.context_tokens:,}"
    if _lacking(pool, facts):
        return (
            Status.FAIL,
            "no room for output" if facts.output_tokens else "no room for the last page",
        )
    if limits.accepts_too_little(worker, facts):
        return Status.FAIL, f"accepts {worker.limit_tokens:,}"
    if _overpromised(pool, facts):
        return Status.INCONCLUSIVE, f"{worker.slots} slots may share it"
    return Status.PASS, "holds"


def _pool_below(short: Sequence[Pool], facts: Facts) -> Finding | None:
    context = facts.context_tokens
    if not short or context is None:
        return None
    worst = min(short, key=lambda pool: pool.tokens or 0)
    return Finding(
        rule="capacity/pool-below-context",
        severity=Severity.CAPACITY,
        stratum="capacity",
        title=f"the {worst.worker.role} KV pool ({worst.tokens:,} tokens) is smaller than the context "
        f"limit ({context:,})",
        evidence=(
            *(
                f"{pool}: KV pool {pool.tokens:,} tokens ({pool.worker.told_by('pool_tokens')}), "
                f"{context - (pool.tokens or 0):,} short; {_accepts(pool.worker)}"
                for pool in short
            ),
            f"context limit {context:,} tokens ({facts.context_source})",
        ),
        remedy=remedies.fit_or_grow(
            worst.worker, worst.usable_tokens or 0, context, _gpus_of(worst.worker, facts)
        ),
        workers=_urls(short),
    )


def _gpus_of(worker: Worker, facts: Facts) -> tuple[Gpu, ...]:
    """The GPUs that it runs on, as far as somebody said which; else all of them."""
    return tuple(gpu for gpu in facts.gpus if gpu.worker in (None, worker.url))


def _accepts(worker: Worker) -> str:
    if worker.limit_tokens is None:
        return "which lengths it accepts is unknown"
    return f"accepts prompts up to {worker.limit_tokens:,} ({worker.told_by('limit_tokens')})"


def _no_room(facts: Facts) -> Finding | None:
    """Prompts that are accepted and whose promised output has no room: cut short without an error.

    Source: SGLang answers 200 with the output clipped (``length``) when the prompt fits and prompt and
    output do not. Pages count whole.
    """
    context = facts.context_tokens
    if context is None:
        return None
    lines, worst = [], None
    lacking = []
    for pool in pools(facts):
        need, usable = _lacking(pool, facts), pool.usable_tokens
        if need is None or usable is None:
            continue
        if worst is None or usable < (worst.usable_tokens or 0):
            worst = pool
        lacking.append(pool)
        lines.append(
            f"{pool}: a prompt of {need[0]:,} tokens is accepted and takes {need[1]:,} with its output, in "
            f"whole pages of {pool.worker.page_tokens or 1}; the pool hands out {usable:,} "
            f"({pool.worker.told_by('pool_tokens')})"
        )
    if worst is None:
        return None
    budget = facts.output_tokens or 0
    promised = f" of {budget:,} tokens" if budget else ""
    return Finding(
        rule="capacity/no-room-for-output",
        severity=Severity.CAPACITY,
        stratum="capacity",
        title=f"the pool has no room for the promised output{promised} of the longest prompts: it is cut "
        "short without an error",
        evidence=tuple(lines),
        remedy=remedies.room_for_output(worst.worker, worst.usable_tokens or 0, budget),
        workers=_urls(lacking),
    )


def _lacking(pool: Pool, facts: Facts) -> tuple[int, int] | None:
    """The longest accepted prompt, and what it takes with its output: more than the pool hands out. None where
    there is room, or nobody knows."""
    if facts.context_tokens is None:
        return None
    # a prefill worker never holds the output
    output = None if pool.worker.role is Role.PREFILL else facts.output_tokens
    need, usable = _longest_accepted(pool, facts.context_tokens, output), pool.usable_tokens
    return need if need and usable is not None and need[1] > usable else None


def _longest_accepted(pool: Pool, context: int, output: int | None) -> tuple[int, int] | None:
    """The longest prompt that is promised and accepted, and what it takes with its output, in whole pages.

    Without a promised output only a pool that holds the context is looked at, for its last page.
    """
    if pool.tokens is None or (output is None and pool.tokens < context):
        return None
    budget = output if output and output < context else 0
    limit = pool.worker.limit_tokens
    prompt = context - budget if limit is None else min(limit, context - budget)
    tokens = prompt + budget if budget else context
    page = pool.worker.page_tokens or 1
    return prompt, -(-tokens // page) * page


def _shared_slots(facts: Facts) -> Finding | None:
    """Slots that each promise the whole of one pool (llama.cpp, measured: four requests, four times 500).

    The server does not say whether they share it or divide it, so this is a doubt and no failure.
    """
    sharing = [
        (pool, each) for pool in pools(facts) for each in (_overpromised(pool, facts),) if each
    ]
    if not sharing:
        return None
    first, each = sharing[0]
    return Finding(
        rule="capacity/shared-slots",
        severity=Severity.DEGRADED,
        stratum="capacity",
        title="slots may promise more tokens together than their pool holds: then requests fail when they "
        "come at the same time",
        evidence=tuple(
            f"{pool}: {pool.worker.slots} slots, each of which may take {each:,} tokens, beside a pool of "
            f"{pool.tokens:,} ({pool.worker.told_by('slots')})"
            for pool, each in sharing
        ),
        remedy=remedies.slots(first.worker.slots or 1, each, first.tokens or 0),
        workers=_urls(pool for pool, _ in sharing),
    )


def _overpromised(pool: Pool, facts: Facts) -> int | None:
    """What each slot may take, where the slots together may take more than the pool."""
    slots, each = pool.worker.slots or 0, facts.context_tokens or pool.worker.context_tokens
    if pool.tokens is None or each is None or slots < 2 or pool.tokens < each:
        return None
    return each if slots * each > pool.tokens else None


def _urls(found: Iterable[Pool]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pool.worker.url for pool in found))


def _named(unknown: Sequence[Pool]) -> str:
    def names() -> Iterator[str]:
        yield from (str(pool) for pool in unknown[:NAMED])
        if len(unknown) > NAMED:
            yield f"and {len(unknown) - NAMED} more"

    return ", ".join(names())

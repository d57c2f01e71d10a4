"""GPUs: one of a set with less memory, memory that somebody else holds, memory that may be failing.

Engines give every GPU of a set the same pool, so the one with the least memory sets it for all. Policy:
memory that is missing fails, a suspicion is a warning.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from kvcanary.deployment.facts import Gpu
from kvcanary.verdict.findings import Finding, Severity

TOLERANCE = 0.01
"""Part of its memory by which a GPU may be smaller than its like (driver and firmware differ)."""
GIB = 1 << 30
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68})
"""XIDs that a fault of the application raises, by NVIDIA's catalogue: no suspicion of the hardware."""


def findings(gpus: Sequence[Gpu]) -> tuple[Finding, ...]:
    """What the GPUs of a deployment give reason to look at."""
    found = [_short(gpus), _strangers(gpus), _failing(gpus)]
    return tuple(finding for finding in found if finding)


def _finding(
    rule: str, severity: Severity, title: str, lines: Iterable[str], remedy: str
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        stratum="hardware",
        title=title,
        evidence=tuple(lines),
        remedy=remedy,
    )


def _sets(gpus: Sequence[Gpu]) -> Iterator[list[Gpu]]:
    """GPUs that should be alike: one host, one name. Two hosts may have been bought apart."""
    alike: dict[tuple[str, str | None], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        alike[gpu.host, gpu.name].append(gpu)
    yield from alike.values()


def _short(gpus: Sequence[Gpu]) -> Finding | None:
    lines, missing, left = [], 0, 1.0
    for alike in _sets(gpus):
        most = max((g.total_bytes or 0 for g in alike), default=0)
        for gpu in alike:
            if gpu.total_bytes is not None and gpu.total_bytes < most * (1 - TOLERANCE):
                missing = max(missing, most - gpu.total_bytes)
                left = min(left, gpu.total_bytes / most)
                instances = ", divided into MIG instances" if gpu.mig else ""
                lines.append(
                    f"{_name(gpu)} has {_gib(gpu.total_bytes)}, others of its kind {_gib(most)}{instances} "
                    f"({gpu.source})"
                )
    if not lines:
        return None
    return _finding(
        "hardware/gpu-short-of-memory",
        Severity.CAPACITY,
        f"a GPU has up to {_gib(missing)} less memory than the others of its set: it sets the pool of all",
        lines,
        "Replace it, or leave it out of the set. Until then lower the memory fraction of every worker on "
        f"that set to {int(100 * left)}% of what it is.",
    )


def _strangers(gpus: Sequence[Gpu]) -> Finding | None:
    """An engine holds most of each of its GPUs. A process that holds the most of none is not an engine's."""
    owners: dict[str, set[int]] = defaultdict(set)
    for gpu in gpus:
        if gpu.processes:
            largest = max(gpu.processes, key=lambda p: p.used_bytes or 0)
            owners[gpu.host].add(largest.pid)
    lines = [
        f"{_name(gpu)}: process {process.pid} holds "
        f"{'an unknown amount' if process.used_bytes is None else _gib(process.used_bytes)} ({gpu.source})"
        for gpu in gpus
        for process in gpu.processes or ()
        if process.pid not in owners[gpu.host]
    ]
    if not lines:
        return None
    return _finding(
        "hardware/stranger-on-gpu",
        Severity.DEGRADED,
        "a process that is not the engine's holds memory of its GPUs",
        lines,
        "Find out whose it is (`ps -p PID`). At the next start the engine's pool is smaller by what it holds.",
    )


def _failing(gpus: Sequence[Gpu]) -> Finding | None:
    lines = [f"{_name(gpu)}: {fault} ({gpu.source})" for gpu in gpus for fault in _faults(gpu)]
    if not lines:
        return None
    return _finding(
        "hardware/gpu-suspect",
        Severity.DEGRADED,
        "a GPU reports memory or bus errors: it may corrupt what it holds",
        lines,
        "Drain the host and look at `nvidia-smi -q -d ECC,ROW_REMAPPER` and the kernel's log (`NVRM: Xid`). A "
        "pending remap needs a reset of the GPU, a failed one its replacement.",
    )


def _faults(gpu: Gpu) -> Iterator[str]:
    if gpu.uncorrectable_ecc:
        yield f"{gpu.uncorrectable_ecc:,} uncorrectable ECC errors"
    if gpu.remap_failed:
        yield "a row could not be remapped"
    if gpu.remap_pending:
        yield "a row waits to be remapped"
    suspect = [xid for xid in gpu.xids if xid and xid not in APPLICATION_XIDS]
    if suspect:
        yield f"XID {', '.join(map(str, suspect))}"


def _name(gpu: Gpu) -> str:
    name = f" ({gpu.name})" if gpu.name else ""
    return f"GPU {gpu.index} of {gpu.host}{name}"


def _gib(amount: int) -> str:
    return f"{amount / GIB:,.1f} GiB"

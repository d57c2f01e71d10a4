"""``make measure``: time, CPU and memory of ``kvcanary check`` at full size, as a Markdown table.

CPU is user and system time of both processes, kvcanary and the lab that it starts. Memory is the sum of
their peaks (``VmHWM``, read from /proc ten times a second: Linux only). Times are also given in
yardsticks, the time in which this machine hashes 256 MiB with SHA-256, since a busy or slower machine
changes both alike.
"""

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kvcanary.record.journal import load

TARGETS = ("lab:healthy", "lab:glm-5.3", "lab:glm-5.3-patched")
MIB = 1 << 20
YARDSTICK_BYTES = 256 * MIB
COLUMNS = (
    "target",
    "exit",
    "wall s",
    "CPU s",
    "CPU in yardsticks",
    "peak kvcanary MiB",
    "peak lab MiB",
    "sum MiB",
    "requests",
    "prompt tokens",
)


@dataclass(frozen=True)
class Measured:
    """One run. Peaks are in MiB, None where /proc is not to be had."""

    target: str
    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    own_peak: float | None
    lab_peak: float | None
    requests: int
    prompt_tokens: int


def main() -> int:
    """Measure each target and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, help=f"default: {' '.join(TARGETS)}")
    targets = parser.parse_args().targets
    yardstick = min(_yardstick() for _ in range(3))
    print(f"yardstick (SHA-256 of 256 MiB): {yardstick:.2f} s; {os.cpu_count()} cores\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"| {' | '.join('---' for _ in COLUMNS)} |", flush=True)
    for target in targets:
        print(_row(_measure(target), yardstick), flush=True)
    return 0


def _yardstick() -> float:
    data = bytes(YARDSTICK_BYTES)
    began = time.process_time()
    hashlib.sha256(data).digest()
    return time.process_time() - began


def _measure(target: str) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "run.jsonl"
        command = [sys.executable, "-m", "kvcanary", "check", target, "-q", "--record", str(record)]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peaks: dict[int, float] = {}
        while process.poll() is None:
            for pid in (process.pid, *_children(process.pid)):
                peaks[pid] = max(peaks.get(pid, 0.0), _peak(pid))
            time.sleep(0.1)
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not record.exists():
            raise SystemExit(f"{target} could not be run (exit code {process.returncode}).")
        sent = [e for e in load(record).exchanges if e.outcome != "not_reached"]
    own = peaks.pop(process.pid, 0.0)
    return Measured(
        target=target,
        exit_code=process.returncode,
        wall_seconds=wall,
        cpu_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        own_peak=own or None,
        lab_peak=sum(peaks.values()) or None,
        requests=len(sent),
        prompt_tokens=sum(e.length_tokens for e in sent),
    )


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def _peak(pid: int) -> float:
    """The most memory that a process has had resident so far, in MiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _row(run: Measured, yardstick: float) -> str:
    peaks = [run.own_peak, run.lab_peak]
    known = [peak for peak in peaks if peak is not None]
    cells = (
        f"`{run.target}`",
        str(run.exit_code),
        f"{run.wall_seconds:.0f}",
        f"{run.cpu_seconds:.1f}",
        f"{run.cpu_seconds / yardstick:.0f}",
        *("not measured" if peak is None else f"{peak:.0f}" for peak in peaks),
        f"{sum(known):.0f}" if len(known) == len(peaks) else "not measured",
        str(run.requests),
        f"{run.prompt_tokens:,}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())

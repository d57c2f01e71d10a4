"""`kvcanary scan` beside `grep -F -c` on the same file: CPU on one core, and peak memory.

    python -m benchmarks.scan [--megabytes N]

The text is made up: JSON Lines with answers of common words, one marker in each 100 MB. Both programs
are run in turn, several times; the best CPU time of each counts, as the machine is shared. The time that
kvcanary takes to start is given by itself, and is part of every figure.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvcanary.canary.codes import CodeId, CodeMaker, written
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.sitekey import load_or_create
from tests.builders import exchange, info, record

ROUNDS = 5
RUN = 0x0ABCDE
PLANTED = 25
"""Requests of the record that parts are looked for of, with 4,000 codes each."""
MEBIBYTE = 1 << 20
COMMON = "over even Nov. v. rev, given every very have KV cache I Kevin VAT\n"
"""Words that look like the beginning of a marker for a while."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The best of several runs of one command."""

    cpu_seconds: float
    peak_bytes: int

    def better(self, other: "Cost") -> "Cost":
        return Cost(
            min(self.cpu_seconds, other.cpu_seconds), max(self.peak_bytes, other.peak_bytes)
        )


def cost(command: Sequence[str], environment: dict[str, str]) -> Cost:
    """User and system time, and the peak of resident memory, of one command."""
    with tempfile.TemporaryFile() as out:  # grep stops at the first match when nobody reads it
        process = subprocess.Popen(command, env=environment, stdout=out)
        _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # it was waited for here
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--parts-megabytes", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "KVCANARY_SITE_KEY_FILE": str(folder / "site.key")}
        codes = CodeMaker(load_or_create(folder / "site.key"))
        log = text(folder / "log.jsonl", arguments.megabytes, codes)
        small = text(folder / "small.jsonl", arguments.parts_megabytes, codes)
        none = folder / "none"
        none.write_text("none")
        planted = planted_record(folder)
        scan = [sys.executable, "-m", "kvcanary", "scan", "--quiet", "--jobs", "1"]
        field = ["--field", "choices[].message.content", "--id-field", "id"]
        rows = {
            "`grep -F -c KVC-`": (["grep", "-F", "-c", "KVC-", str(log)], log),
            "whole markers, text": ([*scan, str(log)], log),
            "whole markers, JSON Lines with a field": ([*scan, *field, str(log)], log),
            "nothing (start)": ([*scan, str(none)], none),
            "`grep`, the smaller file": (["grep", "-F", "-c", "KVC-", str(small)], small),
            "parts of 100,000 codes, text": ([*scan, "--record", str(planted), str(small)], small),
            "nothing, with the record": ([*scan, "--record", str(planted), str(none)], none),
        }
        best: dict[str, Cost] = {}
        for _ in range(ROUNDS):
            for row, (command, _) in rows.items():
                spent = cost(command, environment)
                best[row] = best[row].better(spent) if row in best else spent
        show(rows, best)
    return 0


def show(rows: dict[str, tuple[list[str], Path]], best: dict[str, Cost]) -> None:
    """Ratios are CPU per byte, of the same run."""
    grep = best["`grep -F -c KVC-`"].cpu_seconds / rows["`grep -F -c KVC-`"][1].stat().st_size
    print("| what | MB | CPU s | ns a byte | x grep | peak MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row, (_, file) in rows.items():
        size, spent = file.stat().st_size, best[row]
        per_byte = spent.cpu_seconds / size
        ratio = f"{per_byte / grep:.1f}" if size > MEBIBYTE else ""
        each = f"{1e9 * per_byte:.2f}" if size > MEBIBYTE else ""
        print(
            f"| {row} | {size / 1e6:,.0f} | {spent.cpu_seconds:.2f} | {each} | {ratio} | "
            f"{spent.peak_bytes / MEBIBYTE:,.0f} |"
        )


def text(path: Path, megabytes: int, codes: CodeMaker) -> Path:
    """A log of answers; every hundredth megabyte holds a marker."""
    rng = random.Random(1)
    known = lexicon()
    vocabulary = [w for words in known.slots for w in words] + list(known.private)
    vocabulary += 4 * COMMON.split(" ")
    with path.open("w", encoding="utf-8") as file:
        for megabyte in range(megabytes):
            size = 0
            while size < 1_000_000:
                answer = " ".join(rng.choices(vocabulary, k=2_000))
                if not size and megabyte % 100 == 0:
                    answer += written(codes.make(CodeId(RUN, 7, megabyte // 100)))
                body = {
                    "id": f"chatcmpl-{rng.getrandbits(64):x}",
                    "created": rng.randrange(10**9),
                    "choices": [{"message": {"content": answer}}],
                }
                size += file.write(json.dumps(body) + "\n")
    return path


def planted_record(folder: Path) -> Path:
    """A record of as many codes as a run of a day may hold."""
    key = load_or_create(folder / "site.key").fingerprint()
    sent = [exchange(n, chapters_before=2_000, chapters_after=1_996) for n in range(PLANTED)]
    run = record(*sent, info=info(run=RUN, site_key=key))
    lines = [{"kind": "info", "value": run.info.model_dump(mode="json")}]
    lines += [{"kind": "exchange", "value": e.model_dump(mode="json")} for e in run.exchanges]
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())

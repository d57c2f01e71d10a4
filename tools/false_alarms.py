"""How often does a suite accuse a healthy deployment, or not decide? Many labs, seeds, noise, look-alikes.

    python -m tools.false_alarms --runs 1000 --out false-alarms.jsonl

Each run is one line of the file. Called again with it, only the seeds that it lacks are run; with
``--runs 0`` none are, and what there is is counted. Exits with 1 when one was accused.
"""

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.instrument.false_alarms import Outcome, outcome, setups


def main() -> int:
    """Run, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--out", type=Path, help="file of one JSON object a run, to be gone on with"
    )
    chosen = parser.parse_args()
    outcomes = read(chosen.out) if chosen.out else []
    done = {o.seed for o in outcomes}
    left = [s for s in setups(chosen.runs, chosen.first_seed, chosen.suite) if s.seed not in done]
    with ProcessPoolExecutor(chosen.jobs) as pool:
        futures = [pool.submit(outcome, setup) for setup in left]
        try:
            for future in as_completed(futures):
                result = future.result()
                outcomes.append(result)
                if chosen.out:
                    write(chosen.out, result)
                if result.accused:
                    print(result, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    return report(outcomes)


def read(path: Path) -> list[Outcome]:
    """What was run before. A line that was cut off is run again."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text("utf-8").splitlines():
        try:
            found.append(Outcome.of(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def write(path: Path, result: Outcome) -> None:
    """One more line, on one of its own whatever stands before it."""
    text = path.read_bytes() if path.exists() else b""
    cut = "" if not text or text.endswith(b"\n") else "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{cut}{json.dumps(result.fields())}\n")


def report(outcomes: list[Outcome]) -> int:
    """The figures."""
    codes = Counter(o.code for o in outcomes)
    accused = [o for o in outcomes if o.accused]
    warned = Counter(rule for o in outcomes for rule in o.findings if not o.accused)
    print(
        f"{len(outcomes)} healthy runs, {sum(o.answers for o in outcomes):,} answers: "
        f"{codes[0]} passed, {codes[3]} inconclusive, {len(accused)} accused; "
        f"in all answers {sum(o.phantom_names for o in outcomes)} names and "
        f"{sum(o.phantom_words for o in outcomes)} private words of phantoms"
    )
    for rule, times in warned.most_common():
        print(f"  warned of {rule} in {times} runs")
    for one in accused:
        print(f"  accused: {one}")
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())

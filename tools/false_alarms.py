"""How often does ``smoke`` accuse a healthy deployment, or not decide? Many labs, seeds, noise, look-alikes.

    python -m tools.false_alarms --runs 1000

Exits with 1 when one was accused.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.instrument.false_alarms import Outcome, outcome, setups


def main() -> int:
    """Run, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=4)
    chosen = parser.parse_args()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for result in pool.map(outcome, setups(chosen.runs, chosen.first_seed)):
            outcomes.append(result)
            if result.accused:
                print(result, flush=True)
    return report(outcomes)


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
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())

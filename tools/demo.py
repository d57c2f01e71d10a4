"""``make demo``: the healthy deployment in a box passes, the one of the incident fails.

Succeeds exactly when both checks end with the exit code that is due.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Act:
    """One check: what is run, the exit code that is due, two lines on what to look at."""

    target: str
    due: int
    announced: str
    look_at: tuple[str, str]


ACTS = (
    Act(
        "lab:healthy",
        0,
        "a healthy deployment: both KV pools hold the whole context",
        (
            "Look at `own` in the table of answers: each answer showed that it read its own pages.",
            "And at the headline: it says how much a pass of three answers is worth, and no more.",
        ),
    ),
    Act(
        "lab:glm-5.3",
        1,
        "the incident: the prefill KV pool is smaller than the context limit",
        (
            "Look at F1: whose text came back, from which request and about which of its tokens.",
            "And at `own` for `window` and `edge`, which lost their pages, where `control` kept them.",
        ),
    ),
)


def main() -> int:
    """Run both checks; 0 when both end as they should."""
    print("Two runs at the incident's real size, about a million tokens a prompt.")
    print(
        "Both together take about a minute on two cores. Nothing leaves this machine.", flush=True
    )
    began, right = time.monotonic(), True
    for number, act in enumerate(ACTS, start=1):
        print(f"\n{'=' * 88}\n{number}. {act.announced}")
        print(f"   $ kvcanary check {act.target}\n{'=' * 88}", flush=True)
        code = subprocess.call([sys.executable, "-m", "kvcanary", "check", act.target])
        if code < 0 or code in (2, 130):
            print(f"\nThe check could not run (exit code {code}).", file=sys.stderr)
            return 1
        right &= code == act.due
        wanted = "as it should be" if code == act.due else f"it should be {act.due}: please report"
        print(f"\n-> exit code {code}, {wanted}")
        for line in act.look_at:
            print(f"   {line}")
        sys.stdout.flush()
    print(f"\nBoth took {time.monotonic() - began:.0f} s.", end=" ")
    print("Both ended as they should." if right else "At least one did NOT end as it should.")
    return 0 if right else 1


if __name__ == "__main__":
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", "100")
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

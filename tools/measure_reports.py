"""Size of each format, and the CPU time that it takes, for one record: the table of docs/reports.md.

kvcanary check 'lab:glm-5.3?context=4096' --suite predeploy --record run.jsonl
python tools/measure_reports.py run.jsonl
"""

import sys
import time
from pathlib import Path

from kvcanary.record.journal import load
from kvcanary.report.formats import FORMATS, PRINTED

TIMES = 3


def main() -> int:
    """Print the table."""
    record = load(Path(sys.argv[1]))
    print("| format | size | CPU seconds |\n| --- | --- | --- |")
    for name in PRINTED:
        render, spent = FORMATS[name].render, []
        for _ in range(TIMES):
            before = time.process_time()
            text = render(record)
            spent.append(time.process_time() - before)
        size = len(text.encode())
        shown = f"{size:,} bytes" if size < 10_000 else f"{size / 1_000:,.0f} kB"
        print(f"| `{name}` | {shown} | {min(spent):.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

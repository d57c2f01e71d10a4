"""The rig by hand: ``python -m tests.engines.real.serve FOLDER``, until Ctrl-C.

FOLDER gets the deployment file, the logs, and ``fault.json``, which `fault.py` explains and which may be written
at any time: ``{"mode": "all", "longer_than": 2000, "every": 1}``.
"""

import argparse
import signal
from pathlib import Path

from tests.engines.real.environments import FOLDER, Environments
from tests.engines.real.vllm_pair import CONTEXT, prefill_decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engines", type=Path, required=True, help=f"as {FOLDER}")
    parser.add_argument("--prefix-cache", action="store_true")
    parser.add_argument("--prefill-context", type=int, default=CONTEXT)
    told = parser.parse_args()
    told.folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("Starting two vLLMs: a minute or two ...", flush=True)
    with prefill_decode(
        Environments(told.engines.resolve()),
        told.folder.resolve(),
        prefix_cache=told.prefix_cache,
        contexts=(told.prefill_context, CONTEXT),
    ) as deployment:
        print(f"Ready: kvcanary check {deployment.file}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("Ending")


if __name__ == "__main__":
    main()

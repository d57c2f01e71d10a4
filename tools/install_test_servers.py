"""Installs the real programs that some tests talk to: Prometheus and its pushgateway, and a browser.

Only where that is ours to do: as root, with apt. Elsewhere it says so and is content; the tests that need
one are then skipped, and fail in CI (`tests/needs.py`). No service is started.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "prometheus": ("prometheus",),
    "prometheus-pushgateway": ("prometheus-pushgateway",),
    "chromium": ("chromium", "fonts-dejavu-core"),
}
"""The Debian packages of each program; without a font a browser draws no letters."""
POLICY = Path("/usr/sbin/policy-rc.d")
NO_SERVICES = (
    "#!/bin/sh\n# kvcanary's test set-up: packages are installed, services stay off\nexit 101\n"
)


def main() -> int:
    """Install what is missing. Always 0: what cannot be had is the tests' business."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not missing:
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(
            f"not installed: {', '.join(missing)} (needs root and apt-get); their tests are skipped"
        )
        return 0
    print(f"Installing {', '.join(missing)} with apt-get, once ...", flush=True)
    own_policy = not POLICY.exists()
    if own_policy:
        POLICY.write_text(NO_SERVICES)
        POLICY.chmod(0o755)
    try:
        # the lists of a fresh machine may be missing or old
        packages = [package for program in missing for package in PROGRAMS[program]]
        complaint = _install(packages) and (_apt("update") or _install(packages))
    finally:
        if own_policy:
            POLICY.unlink(missing_ok=True)
    if complaint:
        print(f"apt-get could not; the tests that need them are skipped. It said:\n{complaint}")
    return 0


def _install(packages: list[str]) -> str:
    return _apt("install", "--yes", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> str:
    """Run apt-get: the end of what it complained of, or nothing when all went well."""
    ended = subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return ""
    return ended.stderr.strip()[-1_000:] or f"exit code {ended.returncode}"


if __name__ == "__main__":
    sys.exit(main())

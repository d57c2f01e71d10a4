"""Where probes, suites and report templates lie: beside the package in a checkout, inside it in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
ADVISORIES = _PACKAGE / "detect" / "advisories.yaml"
"""Known faults of engines: knowledge of the package itself, so it lies inside it."""


def data_path(folder: str) -> Path:
    """The folder ``probes``, ``suites`` or ``reports``."""
    installed = _PACKAGE / "_data" / folder
    return installed if installed.is_dir() else _PACKAGE.parent / folder

"""The advisories that kvcanary ships."""

from kvcanary.data import ADVISORIES
from kvcanary.detect.advisories import Advisories, Advisory
from kvcanary.probing.yaml_file import load_yaml


def shipped_advisories() -> tuple[Advisory, ...]:
    """Known faults, in the order of the file. Raises ConfigError when the file was damaged."""
    return load_yaml(ADVISORIES, Advisories).advisories

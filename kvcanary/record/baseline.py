"""The earlier run that a run is compared with."""

from kvcanary.deployment.facts import Facts
from kvcanary.record.base import Recorded


class Baseline(Recorded):
    """What an earlier run's record says of the deployment."""

    run: int
    site_key: str
    """Fingerprint of the key that its configurations are made with: those of another key do not compare."""
    started_at: float
    facts: Facts

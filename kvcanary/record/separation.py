"""By what a deployment could tell the tenants of a run apart."""

from kvcanary.record.base import Recorded


class Separation(Recorded):
    """How many different values of each the run's tenants were sent with. The values are not kept."""

    identities: int = 1
    """Identities that tenants were sent as; 1 where the deployment file lists none."""
    keys: int = 0
    """API keys: with fewer than two, mix-ups between keys cannot be seen and were not tested."""
    headers: int = 0
    """Sets of extra headers."""
    salts: int = 0
    """Values of ``cache_salt``."""
    users: int = 0
    """Values of ``user`` that were given; where none is, each tenant has one of its own."""
    models: int = 1
    """Models or adapters."""

    @property
    def keys_differ(self) -> bool:
        """Whether a mix-up between keys could have been seen."""
        return self.keys > 1

"""Who each tenant of a run is sent as, where the deployment file gives several identities.

They are dealt in turn, so that neighbours differ: the first victim is another than the first reader, and
readers that are in flight together are sent with different keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary.probing.endpoint import ANYBODY, Endpoint, Identity, SecretKey
from kvcanary.probing.roles import FIRST_VICTIM, READERS
from kvcanary.record.separation import Separation


@dataclass(frozen=True, slots=True)
class Identities:
    """What tenants are sent as. Without any given, all are sent as the endpoint says."""

    endpoint: Endpoint
    given: tuple[Identity, ...] = ()

    def index(self, tenant: int) -> int | None:
        """Which of those given a tenant is sent as; None where none is."""
        if not self.given:
            return None
        first = FIRST_VICTIM - 1 if tenant >= FIRST_VICTIM else READERS[0]
        return (tenant - first) % len(self.given)

    def of(self, tenant: int) -> Identity:
        """What a tenant is sent as."""
        index = self.index(tenant)
        return ANYBODY if index is None else self.given[index]

    def key(self, tenant: int) -> int:
        """Number of the tenant's key among the different ones: what a gateway counts tokens by."""
        return self._keys().index(self.of(tenant).api_key or self.endpoint.api_key)

    def model(self, tenant: int) -> str:
        """What a tenant's requests ask for."""
        return self.of(tenant).model or self.endpoint.model

    def adapters(self) -> tuple[str, ...]:
        """What else than the endpoint's model tenants ask for."""
        models = (identity.model for identity in self.given)
        return tuple(dict.fromkeys(m for m in models if m and m != self.endpoint.model))

    def _keys(self) -> Sequence[SecretKey | None]:
        return list(
            dict.fromkeys(i.api_key or self.endpoint.api_key for i in self.given or (ANYBODY,))
        )

    def separation(self) -> Separation:
        """By what the deployment can tell this run's tenants apart."""
        everybody = self.given or (ANYBODY,)
        return Separation(
            identities=len(everybody),
            keys=len([key for key in self._keys() if key is not None]),
            headers=len({i.headers for i in everybody if i.headers}),
            salts=len({i.cache_salt for i in everybody if i.cache_salt is not None}),
            users=len({i.user for i in everybody if i.user is not None}),
            models=len({i.model or self.endpoint.model for i in everybody}),
        )

"""What given records have planted: codes of which parts can be found, and whose each one is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kvcanary.canary.codes import CodeMaker
from kvcanary.canary.index import CodeIndex
from kvcanary.canary.sitekey import SiteKey
from kvcanary.errors import UsageError
from kvcanary.probing.known import MAX_CODES, codes_of
from kvcanary.record.run import RunRecord


@dataclass(frozen=True, slots=True)
class Planted:
    """The codes of some runs. ``left_out``: those beyond what is kept in memory."""

    index: CodeIndex
    owners: Mapping[tuple[int, int], tuple[str, str]]
    """(run, request) -> name of its tenant, name of its stratum."""
    left_out: int
    runs: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.index)


def planted(records: Sequence[RunRecord], key: SiteKey) -> Planted:
    """Of all records, the latest first. Raises UsageError when one was made with another key."""
    for record in records:
        if record.info.site_key != key.fingerprint():
            raise UsageError(
                f"The record of run {record.info.run:07x} was made with another site key: its codes cannot "
                "be written again here. Set KVCANARY_SITE_KEY_FILE to the key it was made with."
            )
    latest = sorted(records, key=lambda record: -record.info.started_at)
    runs = {record.info.run: record for record in latest}
    codes, index = CodeMaker(key), CodeIndex()
    identities = (identity for record in runs.values() for identity in codes_of(record))
    for identity in islice(identities, MAX_CODES):
        index.add(identity, codes.make(identity))
    return Planted(
        index, dict(_owners(runs.values())), sum(1 for _ in identities), tuple(sorted(runs))
    )


def _owners(
    records: Iterable[RunRecord],
) -> Iterable[tuple[tuple[int, int], tuple[str, str]]]:
    for record in records:
        names = record.info.tenants
        for e in record.exchanges:
            name = names[e.tenant] if 0 <= e.tenant < len(names) else f"tenant {e.tenant}"
            yield (record.info.run, e.number), (name, e.group)

"""What a scan says, and how sure it is: a pure function of what was seen.

A whole code verifies itself with odds of 2^-28 that chance did it, so what counts is how many strings were
tried. Strings in the exact form of a code are rare in any text, and counted apart from the others (base64
is full of those). Parts are judged as those in answers are (``kvcanary.canary.odds``).
"""

from collections.abc import Mapping
from enum import StrEnum

from kvcanary.canary import odds
from kvcanary.canary.codes import RUN_BITS, TAG_BITS
from kvcanary.canary.run_number import CHANCE_BITS, begun
from kvcanary.record.base import Recorded
from kvcanary.scan.sighting import Kind, Sighting
from kvcanary.scan.tally import Counts, Tally
from kvcanary.verdict.claims import ExitCode

SCHEMA_VERSION = 1
UNDECIDED_ODDS = 1e-4
"""Weaker evidence than this is what chance does every now and then, and is only counted."""


class Status(StrEnum):
    """What a sighting is worth."""

    FOUND = "found"
    """This site's marker; that chance did it has odds of at most 2.2e-7 over the whole scan."""
    UNDECIDED = "undecided"
    """Likely, and not sure: too weak for so much text, or in a record that could not be read."""
    UNVERIFIED = "unverified"
    """Another site's marker, or pasted: no evidence."""


class Hit(Sighting):
    """A sighting with what it is worth."""

    status: Status
    odds: float | None = None
    """That chance did it, over the whole scan; None for what is unverified."""
    run_began: str | None = None
    """When the run began (UTC, to the minute), from the code itself."""
    tenant: str | None = None
    """Whom the request was sent as, where a given record says so."""
    stratum: str | None = None


class FileScanned(Recorded):
    """One file or stream."""

    name: str
    text_bytes: int = 0
    """Bytes of (decompressed) text that were searched."""
    error: str | None = None
    """Why it could not be read, or not to its end."""
    note: str | None = None


class ScanResult(Recorded):
    """A whole scan."""

    schema_version: int = SCHEMA_VERSION
    site_key: str
    """Fingerprint of the key that recognised the markers."""
    fields: tuple[str, ...] = ()
    planted_codes: int = 0
    """Codes of given records of which parts were looked for."""
    hits: tuple[Hit, ...] = ()
    by_chance: int = 0
    """Parts too short to tell from what chance does in so much text."""
    files: tuple[FileScanned, ...] = ()
    counts: Counts
    stopped: str | None = None
    """Why it ended before everything was read."""
    exit_code: ExitCode

    def having(self, status: Status) -> tuple[Hit, ...]:
        return tuple(hit for hit in self.hits if hit.status is status)


Owners = Mapping[tuple[int, int], tuple[str, str]]


def judged(
    tally: Tally,
    files: tuple[FileScanned, ...],
    *,
    now: float,
    site_key: str,
    fields: tuple[str, ...] = (),
    planted_codes: int = 0,
    owners: Owners | None = None,
    stopped: str | None = None,
) -> ScanResult:
    """Weigh what was seen. ``now``: Unix seconds; a run that has not begun yet made no code."""
    chance = _Chance(tally, now, planted_codes)
    hits = [_hit(s, chance, owners or {}) for s in tally.sightings]
    kept = tuple(hit for hit in hits if hit is not None)
    return ScanResult(
        site_key=site_key,
        fields=fields,
        planted_codes=planted_codes,
        hits=kept,
        by_chance=len(hits) - len(kept),
        files=files,
        counts=tally.counts,
        stopped=stopped,
        exit_code=_exit_code(kept, files, stopped),
    )


class _Chance:
    """How likely chance alone would have produced what a scan has seen."""

    def __init__(self, tally: Tally, now: float, planted_codes: int) -> None:
        self._now = now
        self._planted = planted_codes
        self._counts = tally.counts
        minutes = max(1.0, (now - begun(0).timestamp()) / 60)
        self._past = min(1.0, minutes / 2 ** (RUN_BITS - CHANCE_BITS))
        wholes = [s for s in tally.sightings if s.kind is Kind.WHOLE]
        self._whole = {
            altered: self._of_wholes({s.marker for s in wholes if s.altered is altered}, altered)
            for altered in (False, True)
        }

    def of(self, sighting: Sighting) -> float:
        if sighting.kind is Kind.PART:
            return odds.partial_code(
                sighting.characters, max(1, self._counts.windows), self._planted
            )
        assert sighting.run is not None  # noqa: S101 - a whole code says its run
        early = begun(sighting.run).timestamp() > self._now + _CLOCK_SECONDS
        return 1.0 if early else self._whole[sighting.altered]

    def _of_wholes(self, markers: set[str], altered: bool) -> float:
        tests = self._counts.altered_tests if altered else self._counts.intact_tests
        count = len(markers)
        return odds.at_least(count, max(tests, count), self._past / 2.0**TAG_BITS)


_CLOCK_SECONDS = 86_400.0
"""How far another host's clock may be ahead."""


def _hit(sighting: Sighting, chance: _Chance, owners: Owners) -> Hit | None:
    """None where chance explains it."""
    seen = sighting.model_dump()
    if sighting.kind is Kind.UNVERIFIED or sighting.run is None or sighting.request is None:
        return Hit(**seen, status=Status.UNVERIFIED)
    tenant, stratum = owners.get((sighting.run, sighting.request), (None, None))
    value = chance.of(sighting)
    if sighting.kind is Kind.PART and value > UNDECIDED_ODDS:
        return None
    sure = value <= odds.FORM_BUDGET and sighting.parsed
    return Hit(
        **seen,
        status=Status.FOUND if sure else Status.UNDECIDED,
        odds=min(1.0, value),
        run_began=f"{begun(sighting.run):%Y-%m-%dT%H:%MZ}",
        tenant=tenant,
        stratum=stratum,
    )


def _exit_code(
    hits: tuple[Hit, ...], files: tuple[FileScanned, ...], stopped: str | None
) -> ExitCode:
    """What was found outweighs what could not be read: it is there whatever else is."""
    if stopped:
        return ExitCode.INTERRUPTED
    if any(hit.status is Status.FOUND for hit in hits):
        return ExitCode.VIOLATION
    if not files or any(file.error for file in files):
        return ExitCode.COULD_NOT_RUN
    if any(hit.status is Status.UNDECIDED for hit in hits):
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS

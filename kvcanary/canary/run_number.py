"""Run numbers: 26 bits in every code, of which 23 count minutes, so that a marker tells how old it is."""

import secrets
from datetime import UTC, datetime, timedelta

from kvcanary.canary.codes import RUN_BITS

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CHANCE_BITS = 3
"""Two runs in one minute differ by chance in these (the nonce of their text differs in any case)."""


def new_run_number(now: float) -> int:
    """The number of a run that starts now (Unix seconds); the minutes last until 2041."""
    minutes = max(0, int(now - EPOCH.timestamp()) // 60)
    return (minutes << CHANCE_BITS | secrets.randbits(CHANCE_BITS)) & ((1 << RUN_BITS) - 1)


def begun(number: int) -> datetime:
    """When the run of this number began, to the minute."""
    return EPOCH + timedelta(minutes=number >> CHANCE_BITS)

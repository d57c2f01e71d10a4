"""How much was planted in a run: what the odds of every accusation are computed from."""

from kvcanary.record.base import Recorded


class Scale(Recorded):
    """Counted when the last answer had been read."""

    planted_codes: int
    planted_slots: int
    tenants: int
    phantoms: int

"""Two lengths between which answers stop being sound."""

from enum import StrEnum

from kvcanary.record.base import Recorded


class Sign(StrEnum):
    """What changes at a boundary."""

    LABELS = "labels lost"
    REFUSAL = "refused"
    FIRST_TOKEN = "first token too early"  # noqa: S105 - no secret


class Boundary(Recorded):
    """Prompts of ``sound_tokens`` were served well, those of ``lost_tokens`` were not."""

    sound_tokens: int
    lost_tokens: int
    sign: Sign = Sign.LABELS

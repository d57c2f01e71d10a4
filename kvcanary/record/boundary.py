"""Two lengths between which answers stop being sound."""

from kvcanary.record.base import Recorded


class Boundary(Recorded):
    """Prompts of ``sound_tokens`` kept their labels, those of ``lost_tokens`` did not."""

    sound_tokens: int
    lost_tokens: int

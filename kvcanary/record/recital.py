"""How an answer copies a long passage of its own prompt: how far, and where it breaks. No text."""

from kvcanary.record.base import Recorded


class Recital(Recorded):
    """Figures are of letters and digits, which is all that is compared."""

    copied: int
    """Characters that stand where they belong, one after the other."""
    repeated: int = 0
    """Seams: what was said just before is said again, and it goes on from there."""
    skipped: int = 0
    """Seams: a piece is left out, and it goes on behind it."""

    @property
    def broken(self) -> bool:
        """Something is missing in the middle, or there twice."""
        return self.repeated + self.skipped > 0

"""Reads how an answer copies a passage, while its text is in memory: what is there twice, what is left out."""

from kvcanary.canary.folding import fold, squash
from kvcanary.record.recital import Recital

ANCHOR = 24
"""Characters that have to agree on both sides of a seam: about six words, two of them the request's own."""
SLIP = 16
"""Up to so many characters put in, left out or changed are a slip of the model: two or three words."""
NEAR = 128
"""As far as a seam reaches, back or ahead: about twenty-four tokens. A model that slips goes on anywhere."""
LEAST_COPIED = 256
"""Characters below which an answer is no recital."""
MAX_CHARACTERS = 16_000
"""As much of an answer as is looked at."""


def recital_of(text: str, passage: str) -> Recital | None:
    """How ``text`` copies ``passage``; None where it hardly does."""
    walk = _Walk(squash(fold(text[:MAX_CHARACTERS])), squash(passage))
    walk.go()
    if walk.copied < LEAST_COPIED:
        return None
    return Recital(copied=walk.copied, repeated=walk.repeated, skipped=walk.skipped)


class _Walk:
    """Through the answer and the passage at the same time."""

    def __init__(self, said: str, passage: str) -> None:
        self._said, self._passage = said, passage
        self._at = self._place = 0
        self.copied = self.repeated = self.skipped = 0
        grams = range(len(passage) - ANCHOR, -1, -1)
        self._first = {passage[n : n + ANCHOR]: n for n in grams}
        """Where each piece of the passage stands first."""

    def go(self) -> None:
        """To the end of the answer: copied runs, joined by seams or slips, or begun anew elsewhere."""
        while self._enter():
            run = self._run()
            while run >= ANCHOR and self._joined():
                run = self._run()

    def _enter(self) -> bool:
        """On to the next piece of the passage, wherever that stands."""
        for at in range(self._at, len(self._said) - ANCHOR + 1):
            place = self._first.get(self._said[at : at + ANCHOR])
            if place is not None:
                self._at, self._place = at, place
                return True
        return False

    def _run(self) -> int:
        """Along as far as both agree; how far that was."""
        begin, said, passage = self._at, self._said, self._passage
        at, place = self._at, self._place
        while at < len(said) and place < len(passage) and said[at] == passage[place]:
            at, place = at + 1, place + 1
        self._at, self._place = at, place
        self.copied += at - begin
        return at - begin

    def _joined(self) -> bool:
        """Over a slip, or a seam without anything between, to where it goes on nearby."""
        for put_in in range(SLIP + 1):
            piece = self._said[self._at + put_in : self._at + put_in + ANCHOR]
            place = self._nearest(piece) if len(piece) == ANCHOR else None
            if place is None:
                continue
            moved = place - self._place
            if abs(moved) > SLIP and put_in:
                return False
            self.repeated += moved < -SLIP
            self.skipped += moved > SLIP
            self._at, self._place = self._at + put_in, place
            return True
        return False

    def _nearest(self, piece: str) -> int | None:
        """Where a piece stands, nearest to the place that was come to."""
        back = self._passage.rfind(piece, max(0, self._place - NEAR), self._place + ANCHOR)
        ahead = self._passage.find(piece, self._place, self._place + NEAR + ANCHOR)
        places = [place for place in (back, ahead) if place >= 0]
        return min(places, key=lambda place: abs(place - self._place), default=None)

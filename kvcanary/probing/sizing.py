"""From tokens to chapters: a prompt's shape from the token counts that the server reported."""

import math
from dataclasses import dataclass

from kvcanary.canary.prompt import MAX_CHAPTERS, Shape
from kvcanary.record.base import Recorded


class Calibration(Recorded):
    """``tokens = base + chapters * chapter + padding words``, as counted by the server's ``usage``."""

    base_tokens: int
    """The shortest prompt: chat template, notice, labels and question."""
    chapter_tokens: float
    fitted_tokens: int
    """The longest prompt that the fit rests on."""

    def uncertainty(self, tokens: int) -> int:
        """How far off a prediction may be: codes tokenise unevenly, and a fit from short prompts is
        stretched over long ones (0.2 % of what lies beyond the longest prompt fitted, and one percent
        of a chapter for each square root of chapters)."""
        beyond = max(0, tokens - self.fitted_tokens)
        chapters = max(0.0, tokens / self.chapter_tokens)
        return math.ceil(0.002 * beyond + 0.01 * self.chapter_tokens * math.sqrt(chapters))

    def shape(self, tokens: int) -> Shape:
        """The shape whose prompt has exactly ``tokens`` tokens by this calibration.

        Raises TooShort when not even the frame of a prompt fits.
        """
        room = tokens - self.base_tokens
        if room < 0:
            raise TooShort(self.base_tokens)
        chapters = min(int(room / self.chapter_tokens), MAX_CHAPTERS)
        pad = max(0, int(room - chapters * self.chapter_tokens))
        return Shape((chapters + 1) // 2, chapters // 2, pad)

    def predict(self, shape: Shape) -> int:
        """Tokens of a prompt of this shape."""
        return round(self.base_tokens + shape.chapters * self.chapter_tokens + shape.pad_words)

    def refit(self, shape: Shape, prompt_tokens: int) -> "Calibration":
        """Learn from a longer prompt that the server has counted."""
        if prompt_tokens <= self.fitted_tokens or not shape.chapters:
            return self
        chapter = (prompt_tokens - self.base_tokens - shape.pad_words) / shape.chapters
        if not 0.98 < chapter / self.chapter_tokens < 1.02:
            return self
        return self.model_copy(update={"chapter_tokens": chapter, "fitted_tokens": prompt_tokens})


@dataclass
class TooShort(Exception):  # noqa: N818 - says what is wrong
    """The length asked for leaves no room for a canary prompt."""

    least_tokens: int

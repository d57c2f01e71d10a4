"""What calibration has measured of a deployment, and from it: tokens to chapters, tokens to seconds."""

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, linear_regression

from kvcanary.canary.prompt import MAX_CHAPTERS, Shape
from kvcanary.record.base import Recorded
from kvcanary.record.exchange import Form


class Thinking(StrEnum):
    """Whether the model thinks before it answers, and what turns that off."""

    NONE = "none"
    OFF_BY_EFFORT = "off by reasoning_effort"
    OFF_BY_TEMPLATE = "off by chat_template_kwargs.enable_thinking"
    ON = "on"


class FirstToken(Recorded):
    """First-token time against length: ``seconds = base + per_token * tokens`` (least squares)."""

    base_seconds: float
    per_token_seconds: float
    low_per_token_seconds: float
    high_per_token_seconds: float
    """95 % interval of the slope; wide while it rests on few short prompts."""
    longest_tokens: int
    samples: int

    def seconds(self, tokens: int) -> float:
        """First-token time of a prompt at most, by the upper end of the interval: a price to count on."""
        return max(0.0, self.base_seconds) + self.high_per_token_seconds * tokens

    def expected_seconds(self, tokens: int) -> float:
        """First-token time of a prompt as the line has it."""
        return max(0.0, self.base_seconds + self.per_token_seconds * tokens)

    def most_seconds(self, tokens: int) -> float:
        """However its cost grows: attention makes prefill at worst quadratic in the length, and a line
        through short prompts shows nothing of that."""
        return self.seconds(tokens) * max(1.0, tokens / self.longest_tokens)


class FormCount(Recorded):
    """How often a form of the prompt's own text came back in calibration's answers."""

    form: Form
    seen: int
    answers: int


class Calibration(Recorded):
    """``tokens = base + chapters * chapter + padding words``, as counted by the server's ``usage``."""

    base_tokens: int
    """The shortest prompt: chat template, notice, labels and question."""
    chapter_tokens: float
    fitted_tokens: int
    """The longest prompt that the fit rests on."""
    first_token: FirstToken | None = None
    """None without streaming."""
    output_token_seconds: float | None = None
    """Seconds for one token of an answer."""
    forms: tuple[FormCount, ...] = ()
    """What comes back of each form. It drops none: what surfaces from stale pages is another matter
    (``kvcanary.probing.simulate``)."""
    thinking: Thinking = Thinking.NONE
    repeatable: bool | None = None
    """Whether the same prompt had the same answer twice at temperature 0."""
    response_cache: bool = False
    """Whether the second of two equal requests came back with the first one's response id."""

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
            raise TooShort
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


ASSUMED = Calibration(base_tokens=240, chapter_tokens=600.0, fitted_tokens=840)
"""Where nobody may be asked: a chapter has 476 words, and vocabularies split names and codes."""


def fit_first_token(samples: Sequence[tuple[int, float]]) -> FirstToken | None:
    """Least squares over (tokens, seconds); None for fewer than three lengths apart."""
    if len({tokens for tokens, _ in samples}) < 3:
        return None
    from scipy.special import stdtrit  # scipy.stats alone takes half a second to import

    tokens, seconds = zip(*samples, strict=True)
    fit = linear_regression(tokens, seconds)
    off = math.fsum((s - fit.intercept - fit.slope * n) ** 2 for n, s in samples)
    middle = fmean(tokens)
    spread = math.fsum((n - middle) ** 2 for n in tokens)
    freedom = len(samples) - 2
    reach = float(stdtrit(freedom, 0.975)) * math.sqrt(off / freedom / spread)
    slope = max(0.0, fit.slope)
    return FirstToken(
        base_seconds=fit.intercept,
        per_token_seconds=slope,
        low_per_token_seconds=max(0.0, slope - reach),
        high_per_token_seconds=slope + reach,
        longest_tokens=max(tokens),
        samples=len(samples),
    )


class TooShort(Exception):  # noqa: N818 - says what is wrong
    """The length asked for leaves no room for a canary prompt."""

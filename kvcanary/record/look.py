"""What an answer looks like, in figures: enough to see that something is wrong with it, and no text."""

from kvcanary.record.base import Recorded


class Look(Recorded):
    """Of the content of an answer, or of whatever text there is where it has none. Shares are from 0 to 1."""

    words: int = 0
    """Words, or pairs of letters in scripts that put no spaces between them."""
    looping: float = 0.0
    """Share of the characters that stand in loops: the same few characters again and again."""
    scripts: int = 0
    """Scripts of which it holds several letters: Latin, Cyrillic, Han ..."""
    role_words: int = 0
    """Words of chat templates: system, user, assistant ..."""
    unexplained: int = 0
    """Words that stand neither in the prompt nor in what any prompt of kvcanary is made of."""
    cut_in_label: bool = False
    """It ends in the middle of the label that it was asked for."""

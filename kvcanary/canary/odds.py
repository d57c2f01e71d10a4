"""How likely chance alone would have produced what was seen: the price of an accusation.

Every rule is a union bound: (places in the answers where it could have happened) x (planted things it
could have hit) / (values that many bits can take). A finding of severity ``leak`` needs the sum over
all rules of a run to stay below one in a million, so each form of evidence has a budget.
"""

from kvcanary.canary.codes import BITS_PER_CHARACTER, CODE_CHARACTERS

RUN_BUDGET = 1e-6
"""Designed odds of a false leak in one run."""
FORM_BUDGET = 0.22 * RUN_BUDGET
"""What each form of foreign text (codes, phrases, names, private words) may spend of it."""
MIX_UP_BUDGET = 0.06 * RUN_BUDGET
"""What stray ids may spend of it, and what departures may: four times the one and twice the other is all."""


def partial_code(characters: int, windows: int, planted_codes: int) -> float:
    """Expected chance agreements of ``characters`` in a row, in ``windows`` places of the answers."""
    places = CODE_CHARACTERS - characters + 1
    return windows * planted_codes * places / 2.0 ** (BITS_PER_CHARACTER * characters)


def phrase(words: int, windows: int, planted_slots: int, alphabets: int = 6) -> float:
    """Expected chance agreements of ``words`` slot words in a row; a word carries one byte."""
    return windows * (planted_slots / alphabets) / 2.0 ** (8 * words)


def at_least(hits: int, tries: int, chance: float) -> float:
    """Odds of ``hits`` or more among ``tries`` when each falls on a tenant with ``chance``.

    Used for names and private words, with the phantoms as the rest: exact binomial upper tail.
    """
    if hits <= 0:
        return 1.0
    from scipy.special import bdtrc

    return float(bdtrc(hits - 1, tries, chance))

"""Exact statements from few observations."""

import math

CONFIDENCE = 0.95
BOTH = 1 - (1 - CONFIDENCE) / 2
"""Confidence of each of two bounds that have to hold together at 95 %."""


def answers_for(bound: float, confidence: float = CONFIDENCE) -> int:
    """Answers without a bad one that it takes to claim a rate below ``bound``.

    >>> answers_for(0.2)
    14
    """
    if not 0 < bound < 1:
        raise ValueError(f"{bound} is no rate")
    return math.ceil(math.log(1 - confidence) / math.log(1 - bound))


def answers_for_leaks(bound: float, simulations: int) -> int:
    """Answers without a bad one, and ``simulations`` simulated leaks that are all recognised, that it takes to
    claim a rate of leaks below ``bound``.

    >>> answers_for_leaks(0.2, 8)
    28
    """
    return answers_for(bound * lower_bound(simulations, simulations, BOTH), BOTH)


def lower_bound(good: int, measured: int, confidence: float = CONFIDENCE) -> float:
    """Clopper-Pearson one-sided lower bound of a rate after ``good`` of ``measured``.

    >>> round(lower_bound(4, 4), 3)
    0.473
    """
    return 1.0 - upper_bound(measured - good, measured, confidence)


def upper_bound(bad: int, measured: int, confidence: float = CONFIDENCE) -> float:
    """Clopper-Pearson one-sided upper bound of a rate after ``bad`` of ``measured``.

    >>> round(upper_bound(0, 3), 3)
    0.632
    """
    if measured < 1 or not 0 <= bad <= measured:
        raise ValueError(f"no bound from {bad} of {measured}")
    if bad == measured:
        return 1.0
    from scipy.special import betaincinv

    return float(betaincinv(bad + 1, measured - bad, confidence))

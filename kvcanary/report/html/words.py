"""Figures in words, as the report writes them."""

from collections.abc import Iterable

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def tokens(value: float) -> str:
    """``0``, ``250k``, ``1.25M``."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def unit_of(seconds: float) -> tuple[float, str]:
    """The unit that so many seconds are told in: its seconds and its name."""
    return next(((size, name) for size, name in _UNITS if seconds >= 2 * size), (1.0, "s"))


def seconds(value: float) -> str:
    """``0.5 s``, ``2 min``, ``1.5 h``, ``3 d``."""
    size, name = unit_of(value)
    return f"{value / size:.3g} {name}"


def percent(share: float) -> str:
    """``63 %``, the figure and its sign kept together."""
    return f"{share:.0%}".replace("%", "\u00a0%")


def number(value: int | None) -> str:
    """``681,280``, or ``unknown``."""
    return "unknown" if value is None else f"{value:,}"


def span(values: Iterable[int]) -> str:
    """``681,280``, or ``4,096 to 681,280``."""
    every = list(values)
    low, high = min(every), max(every)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def counted(count: int, what: str) -> str:
    """``1 request``, ``2 requests``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"

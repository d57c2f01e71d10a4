"""Keeps book of where each figure came from, and of those that could not be had."""

from typing import TypeVar

from kvcanary.deployment.facts import Told, Untold

T = TypeVar("T")


class Figures:
    """The book of one worker. ``told`` and ``untold`` go into it."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._untold: list[Untold] = []

    def first(self, figure: str, *options: tuple[T | None, str], remedy: str = "") -> T | None:
        """The first option that is known, noted with where it came from.

        Args:
            options: values, each with the document and field or metric that tells it.
            remedy: how to make the figure known; without one, its absence is not noted.
        """
        for value, by in options:
            if value is not None:
                self.note(figure, by)
                return value
        if remedy:
            self.unknown(figure, remedy)
        return None

    def note(self, figure: str, by: str) -> None:
        """A figure is known, by this document and field."""
        self._told.append(Told(figure=figure, by=by))

    def unknown(self, figure: str, remedy: str) -> None:
        """A figure could not be had; how to make it known."""
        self._untold.append(Untold(figure=figure, remedy=remedy))

    @property
    def told(self) -> tuple[Told, ...]:
        """What is known, in the order in which it was noted."""
        return tuple(self._told)

    @property
    def untold(self) -> tuple[Untold, ...]:
        """What is not."""
        return tuple(self._untold)

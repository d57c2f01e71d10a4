"""Stop strings in a text that comes in pieces."""

from __future__ import annotations


class StopScanner:
    """Passes text on, holding back what might be the beginning of a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=1)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is certain to come before any stop string."""
        if self.matched is not None:
            return ""
        held = self._held + text
        found = [(at, stop) for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            at, self.matched = min(found)
            self._held = ""
            return held[:at]
        keep = next(
            (
                size
                for size in range(min(self._longest - 1, len(held)), 0, -1)
                if any(stop.startswith(held[-size:]) for stop in self._stops)
            ),
            0,
        )
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """What was held back, once no more text follows."""
        held, self._held = self._held, ""
        return held

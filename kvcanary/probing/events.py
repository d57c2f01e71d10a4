"""What a run says while it goes: every display is only a listener."""

from typing import Protocol

from kvcanary.record.exchange import Exchange


class Listener(Protocol):
    """Told of everything as it happens. Must not block."""

    def phase(self, text: str, requests: int, tokens: int) -> None:
        """A phase of ``requests`` requests and about ``tokens`` prompt tokens begins."""

    def note(self, text: str) -> None:
        """Why nothing is sent for a while."""

    def exchanged(self, exchange: Exchange) -> None:
        """One exchange is over and recorded."""


class Silence:
    """A listener that says nothing."""

    def phase(self, text: str, requests: int, tokens: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def exchanged(self, exchange: Exchange) -> None:
        """Nothing."""

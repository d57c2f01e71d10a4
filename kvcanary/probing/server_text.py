"""Text that a server sent: perhaps another customer's, so it shows itself only where it is asked to."""

from collections.abc import Callable
from typing import NoReturn, Self


class ServerText:
    """Text with a fixed ``repr`` and ``str``: it survives logs, tracebacks with locals, ``pytest
    --showlocals`` and comparisons that fail.

    It compares with plain text, knows its length, and is true where there is some.
    """

    __slots__ = ("__reveal",)

    def __init__(self, text: str = "") -> None:
        self.__reveal: Callable[[], str] = lambda: text

    def reveal(self) -> str:
        """The text itself; keep it in no variable that outlives its reading."""
        return self.__reveal()

    @property
    def is_blank(self) -> bool:
        """Nothing but white space."""
        return not self.__reveal().strip()

    def __contains__(self, part: str) -> bool:
        return part in self.__reveal()

    def __len__(self) -> int:
        return len(self.__reveal())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ServerText):
            return self.__reveal() == other.reveal()
        return self.__reveal() == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.__reveal())

    def __repr__(self) -> str:
        return f"<{len(self):,} characters of a server's text>"

    __str__ = __repr__

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a server's text is not written anywhere")


NO_TEXT = ServerText()

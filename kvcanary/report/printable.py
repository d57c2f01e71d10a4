"""Text that steers no terminal and turns no writing around: for whatever a server or a file may have named."""


def printable(text: str, instead: str = "?", *, kept: str = "", without: str = "") -> str:
    """The same text with ``instead`` for each character that is not printable and not one of ``kept``, and for
    each of ``without``."""
    return "".join(
        c if (c.isprintable() or c in kept) and c not in without else instead for c in text
    )


def escaped(text: str) -> str:
    """One line, in which what a terminal would obey is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

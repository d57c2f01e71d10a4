"""One marker in stored text: what it is and where it stands, never the text around it unless asked."""

from enum import StrEnum

from kvcanary.record.base import Recorded


class Kind(StrEnum):
    """How much of a marker was seen, and whose key made it."""

    WHOLE = "whole"
    """Verified by this site's key."""
    PART = "part"
    """Some of the characters of a code that a given record has planted."""
    UNVERIFIED = "unverified"
    """The shape of a code, made with another key or by hand."""


class Sighting(Recorded):
    """A marker that was seen once."""

    file: str
    offset: int
    """Bytes from the beginning of the (decompressed) text; of its record where fields were selected."""
    kind: Kind
    marker: str
    """As it stands in a prompt; ``.`` for each character that was not seen."""
    characters: int
    """How many of its 16 characters were seen."""
    altered: bool
    """Not as it was written: another case, other separators, split or escaped."""
    run: int | None = None
    request: int | None = None
    position: int | None = None
    """What the code says; None where it is not this site's."""
    record_id: str | None = None
    """What ``--id-field`` has in this record."""
    field: str | None = None
    """Which of the selected fields holds it."""
    parsed: bool = True
    """False where the record could not be read, so that all of its text was searched instead."""
    context: str | None = None
    """The text around it, escaped, where that was asked for."""

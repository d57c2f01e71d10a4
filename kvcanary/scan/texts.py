"""One text, or a range of one, searched as it stands: every marker once, with the place where it begins."""

from collections.abc import Iterator

from kvcanary.report.printable import escaped
from kvcanary.scan.search import Found, Searcher
from kvcanary.scan.sighting import Sighting
from kvcanary.scan.tally import Counts, Tally, kept
from kvcanary.scan.windows import Reader, Window, windows

TOLD_BYTES = 16 << 20
"""Text without a marker is told of this often."""
MAX_CONTEXT = 400
"""Characters of text on each side of a marker, at most."""


def scan_text(
    searcher: Searcher,
    reader: Reader,
    name: str,
    *,
    offset: int = 0,
    after: int = 0,
    stop: int | None = None,
    context: int = 0,
) -> Iterator[Tally]:
    """Search what ``reader`` gives, from ``offset`` of the text on: markers that end in ``(after, stop]``.

    Raises OSError, and what a decompressor raises.
    """
    quiet = 0
    for window in windows(reader, offset, after, stop):
        quiet += window.until - window.after
        ends = searcher.anchors(window.view)
        if ends or searcher.thorough or quiet > TOLD_BYTES:
            sightings = _seen(searcher, window, ends, name, context)
            yield kept(sightings, Counts(text_bytes=quiet) + searcher.take_counts())
            quiet = 0
    yield Tally((), Counts(text_bytes=quiet))


def _seen(
    searcher: Searcher, window: Window, ends: list[int], name: str, context: int
) -> tuple[Sighting, ...]:
    """What one window answers for."""
    if not ends and not searcher.thorough:
        return ()
    data = bytes(window.view)
    return tuple(
        sighting(f, name, window.offset + f.begin).model_copy(
            update={"context": around(data, f, context)}
        )
        for f in searcher.found(data, ends)
        if window.owns(f.end)
    )


def sighting(found: Found, name: str, offset: int) -> Sighting:
    """What is told of a marker."""
    identity = found.identity
    return Sighting(
        file=name,
        offset=offset,
        kind=found.kind,
        marker=found.marker,
        characters=found.seen,
        altered=found.altered,
        run=identity.run if identity else None,
        request=identity.request if identity else None,
        position=identity.position if identity else None,
    )


def around(data: bytes, found: Found, context: int) -> str | None:
    """The text on both sides, escaped, so that it cannot pass for anything else on a terminal."""
    if not context:
        return None
    part = data[max(0, found.begin - context) : found.end + context]
    return escaped(part.decode("utf-8", "replace"))

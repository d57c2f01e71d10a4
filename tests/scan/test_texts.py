"""Stored text: a marker is found exactly once, where it begins, however the text is cut and the code spelled."""

import base64
import io
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.scan import windows
from kvcanary.scan.letters import SPAN_BYTES
from kvcanary.scan.ranges import Range, steps
from kvcanary.scan.search import Searcher
from kvcanary.scan.sighting import Kind, Sighting
from kvcanary.scan.tally import MAX_SIGHTINGS, Counts, kept
from kvcanary.scan.texts import scan_text
from kvcanary.scan.windows import LEAD_BYTES
from tests.scan.stored import (
    ANOTHER,
    CODE,
    IDENTITY,
    SPELLINGS,
    STRANGE,
    THOROUGH_SPELLINGS,
    Trickle,
    quick,
    thorough,
)

ENGLISH = b"The keeper of the house looked back very often; Nov. 5, vs. KV caches, kVA and 3 VCs. "
FILLERS = st.sampled_from(
    [
        b" ",
        b"\n",
        b"v",
        b"K",
        b"KV",
        b"KVC",
        b"KVC-7Q4X-",
        b"\\",
        b"\\u00",
        b"\0",
        b"\xff\xfe",
        "é…".encode(),
        ENGLISH,
    ]
)
garbage = st.lists(st.tuples(FILLERS, st.integers(1, 40)), max_size=6).map(
    lambda runs: b"".join(filler * times for filler, times in runs)
)
THOROUGH = thorough()
spelled = st.sampled_from(sorted(SPELLINGS))


def seen(
    searcher: Searcher,
    text: bytes,
    cuts: list[int] | None = None,
    most: int = 1 << 20,
    piece: int = 1 << 18,
) -> list[Sighting]:
    """All sightings of a text that is searched in ranges, each by itself, in pieces of ``piece`` bytes."""
    found: list[Sighting] = []
    bounds = sorted({0, len(text), *(c for c in cuts or () if 0 < c < len(text))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "PIECE_BYTES", piece)
        for begin, end in pairwise(bounds):
            offset = max(0, begin - LEAD_BYTES)
            reader = Trickle(io.BytesIO(text[offset:]), most)
            for tally in scan_text(searcher, reader, "log", offset=offset, after=begin, stop=end):
                found += tally.sightings
    return found


@given(
    garbage,
    spelled,
    garbage,
    st.lists(st.integers(0, 6_000), max_size=3),
    st.integers(1, 5_000),
    st.integers(1, 3_000),
)
def test_a_planted_code_is_found_once_and_where_it_begins_however_the_text_is_cut(
    before: bytes, spelling: str, after: bytes, cuts: list[int], most: int, piece: int
) -> None:
    code = SPELLINGS[spelling](CODE)
    begin = len(before) + 1
    text = before + b"\n" + code + b"\n" + after
    whole = [s for s in seen(quick(), text, cuts, most, piece) if s.kind is Kind.WHOLE]
    (one,) = whole
    assert (one.offset, one.marker) == (begin, CODE)
    assert (one.run, one.request, one.position) == (
        IDENTITY.run,
        IDENTITY.request,
        IDENTITY.position,
    )
    assert one.altered == (spelling != "as written")


@pytest.mark.parametrize("marker", [CODE, CODE[4:18]], ids=["a whole code", "part of one"])
@pytest.mark.parametrize("border", ["of what a piece answers for", "of a piece", "of a range"])
def test_a_marker_at_any_border_is_told_once_and_in_full(marker: str, border: str) -> None:
    piece = 1_000
    at = LEAD_BYTES + piece + (SPAN_BYTES if border == "of a piece" else 0)
    ranged = border == "of a range"
    for shift in range(-3, len(marker) + 4):
        text = b"." * (at - shift) + marker.encode() + b"." * 3_000
        (one,) = seen(THOROUGH, text, [at] if ranged else [], piece=1 << 18 if ranged else piece)
        assert (one.offset, one.characters) == (at - shift, 16 if marker == CODE else 12)


@pytest.mark.parametrize("spelling", [*SPELLINGS, *THOROUGH_SPELLINGS])
def test_the_thorough_search_finds_every_spelling(spelling: str) -> None:
    code = {**SPELLINGS, **THOROUGH_SPELLINGS}[spelling](CODE)
    (one,) = seen(thorough(), b"so: " + code + b" .", piece=900)
    assert (one.offset, one.kind, one.marker) == (4, Kind.WHOLE, CODE)


@settings(max_examples=30)
@given(
    st.integers(0, 8),
    st.integers(8, 15),
    garbage,
    st.lists(st.integers(0, 6_000), max_size=3),
    st.integers(200, 3_000),
)
def test_part_of_a_planted_code_is_found_once(
    at: int, length: int, before: bytes, cuts: list[int], piece: int
) -> None:
    at = min(at, 16 - length)
    characters = CODE[4:].replace("-", "")
    part = characters[at : at + length]
    foil = b" ilou: "  # letters that no code has: nothing grows by chance
    text = before + foil + b"KVC-" * (part.isalpha()) + part.encode() + foil + b" " * 2_000
    parts = [s for s in seen(THOROUGH, text, cuts, piece=piece) if s.kind is Kind.PART]
    (one,) = [s for s in parts if s.characters >= length]
    assert one.marker.replace("-", "")[3:] == "." * at + part + "." * (16 - at - length)
    assert one.offset >= len(before)
    assert text[one.offset :].startswith(part[:1].encode())
    assert not seen(quick(), foil + part.encode() + foil), "half a code cannot verify itself"


def test_a_marker_of_another_key_is_unverified_and_a_slip_in_ones_own_is_not() -> None:
    (one,) = seen(quick(), f"label: {STRANGE}.".encode())
    assert (one.kind, one.marker, one.run) == (Kind.UNVERIFIED, STRANGE, None)
    slipped = CODE[:-1] + ("0" if CODE[-1] != "0" else "1")
    (own,) = seen(thorough(), f"label: {slipped}.".encode())
    assert (own.kind, own.characters) == (Kind.PART, 15)


@pytest.mark.parametrize(
    "text",
    [
        random.Random(1).randbytes(1 << 20),
        base64.b64encode(random.Random(2).randbytes(1 << 20)),
        ENGLISH * 10_000,
        b"KVC" * 3_000,
        b"KVC-" * 3_000,
        (b"K" + b" " * 5_000 + b"V") * 50,
        b"\\" * 200_000,
        b"\\u00" * 50_000,
        b"\0" * 1_000_000,
    ],
    ids=["random", "base64", "English", "KVC", "KVC-", "gaps", "backslashes", "escapes", "zeros"],
)
@pytest.mark.parametrize("searcher", [quick, thorough])
def test_nothing_is_found_where_nothing_was_planted(
    text: bytes, searcher: Callable[[], Searcher]
) -> None:
    assert seen(searcher(), text) == []


def test_a_code_that_is_spread_further_than_any_would_be_is_none() -> None:
    far = CODE.replace("-", " " * SPAN_BYTES).encode()
    assert seen(quick(), far) == []


def test_how_often_chance_had_a_chance_is_counted_once_for_each_string() -> None:
    searcher = quick()
    text = f"{CODE} {CODE} {STRANGE} {ANOTHER.lower()} {CODE.lower()}".encode()
    assert len(seen(searcher, text)) == 5
    tallies = scan_text(quick(), io.BytesIO(text), "log")
    counts = sum((t.counts for t in tallies), Counts())
    assert (counts.intact_tests, counts.altered_tests) == (2, 1)
    assert counts.text_bytes == len(text)


def test_memory_is_bounded_by_what_is_kept() -> None:
    part = Sighting(file="f", offset=0, kind=Kind.PART, marker="", characters=9, altered=False)
    whole = part.model_copy(update={"kind": Kind.WHOLE})
    longer = part.model_copy(update={"characters": 12})
    tally = kept((*[part] * MAX_SIGHTINGS, whole, longer), Counts())
    assert tally.counts.more == 1
    assert tally.sightings[-2:] == (whole, longer), "of parts the longest, and every whole one"


def test_a_range_of_a_file_that_was_cut_meanwhile_is_an_error(tmp_path: object) -> None:
    from pathlib import Path

    from kvcanary.scan.sources import Source, sources
    from tests.scan.stored import QUICK

    path = Path(str(tmp_path)) / "log"
    path.write_bytes(b"x" * 10_000)
    (source,) = sources([str(path)])
    assert isinstance(source, Source)
    path.write_bytes(b"x" * 10)
    told = list(steps(QUICK, quick(), Range(source, 0, 10_000)))
    assert told[-1].error == "it was cut while it was read"
    assert not told[-1].complete

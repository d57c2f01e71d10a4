"""JSON Lines: the selected fields are searched, the record is named, and what cannot be read is never silent."""

import io
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.errors import UsageError
from kvcanary.scan import records
from kvcanary.scan.ranges import Range, Task, steps
from kvcanary.scan.records import Fields, scan_records
from kvcanary.scan.records import Path as FieldPath
from kvcanary.scan.search import Searcher
from kvcanary.scan.sighting import Kind, Sighting
from kvcanary.scan.sources import Source, sources
from kvcanary.scan.tally import Counts, Tally
from tests.canary.scene import KEY
from tests.scan.stored import ANOTHER, CODE, Trickle, quick, thorough

ANSWER = FieldPath.of("choices[].message.content")
ID = FieldPath.of(".id")
FIELDS = Fields((ANSWER,), ID)


def line(number: int, answer: str, prompt: str = "") -> bytes:
    body = {
        "id": f"chatcmpl-{number}",
        "prompt": prompt,
        "choices": [{"message": {"content": answer}}],
    }
    return json.dumps(body).encode() + b"\n"


def tally(searcher: Searcher, text: bytes, fields: Fields = FIELDS, most: int = 1 << 20) -> Tally:
    reader = Trickle(io.BytesIO(text), most)
    return sum(scan_records(searcher, reader, "log", fields), Tally())


def test_only_the_selected_fields_are_searched_and_the_record_is_named() -> None:
    lines = [line(0, "nothing", CODE), line(1, f"it is {CODE}"), line(2, ANOTHER, CODE)]
    seen = tally(quick(), b"".join(lines)).sightings
    assert [(s.marker, s.record_id, s.offset, s.field) for s in seen] == [
        (CODE, "chatcmpl-1", len(lines[0]), ANSWER.text),
        (ANOTHER, "chatcmpl-2", len(lines[0]) + len(lines[1]), ANSWER.text),
    ]


def test_with_an_id_alone_the_line_is_searched_as_it_stands() -> None:
    text = line(0, "", "") + line(1, "", CODE)
    (one,) = tally(quick(), text, Fields((), ID)).sightings
    assert (one.record_id, one.offset, one.field) == ("chatcmpl-1", text.index(CODE.encode()), None)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"a": {"b": ["x", CODE[:10], CODE[10:]]}}, "a.b"),
        ({"a": [{"b": CODE[:2]}, {"b": CODE[2:]}]}, "a[].b"),
        ({"a": {"b": {"c": CODE}}}, "a"),
        ({"a": CODE.replace("-", "\n")}, ".a"),
        ({"a": json.dumps({"text": CODE.replace("-", "\n")})}, "a"),
    ],
    ids=["a list", "pieces of a stream", "an object", "line breaks", "JSON in JSON"],
)
def test_all_the_text_of_a_field_is_searched(document: object, path: str) -> None:
    text = json.dumps(document).encode()
    fields = Fields((FieldPath.of(path),), None)
    (one,) = tally(thorough(), text, fields).sightings
    assert (one.kind, one.marker) == (Kind.WHOLE, CODE)


def test_a_server_sent_event_is_a_record() -> None:
    (one,) = tally(quick(), b"data: " + line(3, CODE) + b"\ndata: [DONE]\n").sightings
    assert (one.record_id, one.parsed) == ("chatcmpl-3", True)


@pytest.mark.parametrize(
    "broken", [b'{"choices": [', b"\xff\xfe", b"[" * 100_000, b'{"n": ' + b"9" * 5_000 + b"} x"]
)
def test_a_record_that_cannot_be_read_is_searched_whole_and_says_so(broken: bytes) -> None:
    text = line(0, "fine") + broken + b" " + CODE.encode() + b"\n" + line(1, ANOTHER)
    seen = tally(quick(), text)
    assert [(s.marker, s.parsed, s.record_id) for s in seen.sightings] == [
        (CODE, False, None),
        (ANOTHER, True, "chatcmpl-1"),
    ]
    assert seen.counts.unparsed == 1


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, "missing"])
def test_an_id_that_is_no_text_is_none(value: object) -> None:
    body = {"choices": [{"message": {"content": CODE}}]}
    text = json.dumps(body if value == "missing" else {**body, "id": value}).encode()
    (one,) = tally(quick(), text).sightings
    assert one.record_id is None


def test_an_id_is_cut_and_cannot_steer_a_terminal() -> None:
    body = {"id": "\x1b[2J\n" + "x" * 500, "choices": [{"message": {"content": CODE}}]}
    (one,) = tally(quick(), json.dumps(body).encode()).sightings
    assert one.record_id is not None
    assert one.record_id.startswith("\\x1b[2J\\n")
    assert one.record_id.isprintable()
    assert len(one.record_id) < 140


def test_a_line_that_is_too_long_to_be_read_is_searched_in_constant_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 20_000)
    monkeypatch.setattr(records, "BLOCK_BYTES", 4_096)
    long = line(1, "x" * 50_000 + CODE + "y" * 30_000)
    text = line(0, ANOTHER) + long + line(2, ANOTHER)
    seen = tally(quick(), text)
    assert [(s.marker, s.parsed) for s in seen.sightings] == [
        (ANOTHER, True),
        (CODE, False),
        (ANOTHER, True),
    ]
    assert seen.sightings[1].offset == text.index(CODE.encode())
    assert seen.counts.text_bytes == len(text)
    assert seen.counts.records == 3


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["", "x", "y" * 300, CODE, f"a {ANOTHER.lower()} b"]), max_size=12),
    st.lists(st.integers(1, 5_000), max_size=4),
    st.booleans(),
)
def test_every_record_belongs_to_exactly_one_range_of_a_file(
    answers: list[str], cuts: list[int], ended: bool
) -> None:
    import tempfile

    text = b"".join(line(n, answer) for n, answer in enumerate(answers)) + line(99, CODE)
    text = text if ended else text.removesuffix(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        path.write_bytes(text)
        (source,) = sources([str(path)])
        assert isinstance(source, Source)
        bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
        task = Task(KEY, None, FIELDS, 0)
        found: list[Sighting] = []
        counts = Counts()
        for begin, end in pairwise(bounds):
            for done in steps(task, quick(), Range(source, begin, end)):
                found += done.tally.sightings
                counts += done.tally.counts
    whole = tally(quick(), text)
    assert [(s.offset, s.record_id, s.marker) for s in found] == [
        (s.offset, s.record_id, s.marker) for s in whole.sightings
    ]
    assert (counts.records, counts.text_bytes) == (len(answers) + 1, len(text))


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "]", "a b"])
def test_a_path_that_is_none_is_told(path: str) -> None:
    with pytest.raises(UsageError, match="names no field"):
        FieldPath.of(path)

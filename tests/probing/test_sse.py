"""The server-sent-events parser: the standard's rules, bounds, and chunks that end anywhere."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.probing.sse import EventTooLongError, SseEvent, SseParser

STREAM = (
    '\ufeffdata: {"content": "naïve 漢字 🐤"}\r\n'
    "\r\n"
    ": a comment\n"
    "event: error\rdata:no space\rdata:  two lines\r\r"
    "id: 7\nretry: 10\n\n"  # an event without data is none
    "data\n\n"
    "data: [DONE]\n\n"
    'error: {"code": 500}\n\n'
    "data: left over"
).encode()
EVENTS = [
    SseEvent("", '{"content": "naïve 漢字 🐤"}'),
    SseEvent("error", "no space\n two lines"),
    SseEvent("", ""),
    SseEvent("", "[DONE]"),
    SseEvent("error", '{"code": 500}'),
    SseEvent("", "left over", complete=False),
]


def parse(chunks: list[bytes], **bounds: int) -> list[SseEvent]:
    parser = SseParser(**bounds)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    rest = parser.close()
    return events if rest is None else [*events, rest]


def test_a_stream_in_one_piece() -> None:
    assert parse([STREAM]) == EVENTS


def test_chunks_of_one_byte() -> None:
    assert parse([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_a_chunk_may_end_at_every_byte(cut: int) -> None:
    assert parse([STREAM[:cut], STREAM[cut:]]) == EVENTS


@settings(deadline=None, derandomize=True)
@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_chunks_may_end_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert parse(chunks) == EVENTS


@settings(deadline=None, derandomize=True)
@given(chunks=st.lists(st.binary(max_size=60), max_size=20))
def test_what_comes_out_does_not_depend_on_the_chunks_and_nothing_raises(
    chunks: list[bytes],
) -> None:
    assert parse(chunks) == parse([b"".join(chunks)])


@settings(deadline=None, derandomize=True)
@given(
    texts=st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8")), max_size=5),
    end=st.sampled_from(["\n", "\r", "\r\n"]),
)
def test_data_lines_come_back_joined(texts: list[str], end: str) -> None:
    stream = "".join(f"data: {text}{end}" for text in texts) + end
    expected = [SseEvent("", "\n".join(texts))] if texts else []
    assert parse([stream.encode()]) == expected
    assert parse([bytes([byte]) for byte in stream.encode()]) == expected


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert parse([b"data: a\xffb\n\n"]) == [SseEvent("", "a\ufffdb")]


def test_a_line_without_end_is_bounded() -> None:
    parser = SseParser(max_event_bytes=1000)
    assert list(parser.feed(b"data: " + b"x" * 900)) == []
    with pytest.raises(EventTooLongError):
        list(parser.feed(b"x" * 200))


def test_an_event_of_many_lines_is_bounded() -> None:
    parser = SseParser(max_event_bytes=1000)
    with pytest.raises(EventTooLongError):
        list(parser.feed(b"data: 0123456789\n" * 200))


def test_many_events_are_not_too_long_together() -> None:
    assert len(parse([b"data: 0123456789\n\n" * 200], max_event_bytes=1000)) == 200


def test_the_text_of_an_event_is_in_no_repr() -> None:
    assert "secret" not in repr(SseEvent("", "secret"))

"""Text of ``/metrics``: what comes out of it, whatever it is."""

import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.engines.exposition import (
    MAX_LINE_CHARS,
    MAX_READ_CHARS,
    MAX_SAMPLES,
    MAX_TEXT_CHARS,
    Exposition,
    Fault,
    Malformed,
    parse,
)

PAYLOADS = Path(__file__).parents[1] / "telemetry" / "payloads"


def captured(name: str) -> str:
    return (PAYLOADS / name).read_text(encoding="utf-8")


def page(text: str) -> Exposition:
    got = parse(text)
    assert isinstance(got, Exposition)
    return got


@pytest.mark.parametrize(
    ("file", "name", "total"),
    [
        ("sglang-0.5.23.prom", "sglang:prompt_tokens_total", 2608),
        ("vllm-0.32.0.prom", "vllm:request_success_total", 9),
        ("llamacpp.prom", "llamacpp:n_tokens_max", 1023),
    ],
)
def test_a_captured_page_is_read_and_its_names_are_the_ones_sent(
    file: str, name: str, total: float
) -> None:
    text = captured(file)
    got = page(text)
    sent = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(got.samples) == len(sent)
    assert got.total(name) == total


def test_sums_over_labels() -> None:
    got = page('a{r="0",s="x"} 1\na{r="0",s="y"} 2\na{r="1",s="x"} 4\na{s="x"} 8\nb 16\n')
    assert got.total("a") == 15
    assert got.total("a", s="x") == 13
    assert got.total("a", s="z") is None
    assert got.total("c") is None
    assert got.by_label("a", "r") == (("0", 3), ("1", 4), (None, 8))
    assert got.by_label("c", "r") == ()


def test_of_duplicates_the_first_counts() -> None:
    got = page('a{x="1",y="2"} 1\na{y="2",x="1"} 5\n# TYPE a counter\n# TYPE a gauge\na{x="1"} 7\n')
    assert [sample.value for sample in got.samples] == [1, 7]


def test_values_that_are_no_numbers_are_values() -> None:
    got = page("a NaN\nb +Inf\nc -Inf\nd -3\ne 1e3 1796053255\n")
    values = [sample.value for sample in got.samples]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, -3, 1000]


def test_labels_are_unescaped_and_in_no_repr() -> None:
    (sample,) = page('a{x="a\\"}\\\\\\n,b=\\"",y="theirs"} 1').samples
    assert sample.label("x") == 'a"}\\\n,b="'
    assert "theirs" not in repr(sample)


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a{",
        'a{x="1"}',
        'a{x="1} 2',
        "a{x=1} 2",
        'a{x="1",x="2"} 2',
        "a one",
        "a 1_000",
        "<html>",
        "{} 1",
        "a " + "9" * 400,
    ],
)
def test_a_malformed_line_is_named(line: str) -> None:
    assert parse(f"good 1\n# fine\n{line}\n") == Malformed(Fault.NO_SAMPLE, 3)


def test_lines_of_other_metrics_are_passed_over() -> None:
    got = parse('nonsense\naa 1\nb{ 2\na 3\n{"a"} 4\n' + "c" * 10_000, only=("a",))
    assert isinstance(got, Exposition)
    assert [(sample.name, sample.value) for sample in got.samples] == [("a", 3)]


def test_bounds() -> None:
    assert parse("a 1\n" * (MAX_TEXT_CHARS // 4) + "\n") == Malformed(Fault.TEXT_TOO_LONG)
    assert parse("#" * MAX_TEXT_CHARS) == Exposition()
    huge = 'a{x="' + "v" * MAX_LINE_CHARS + '"} 1'
    assert parse(f"\n{huge}") == Malformed(Fault.LINE_TOO_LONG, 2)
    line = 'a{x="' + "v" * 991 + '"} 1'
    assert parse(f"{line}\n" * (MAX_READ_CHARS // 1_000 + 1), only=["b"]) == Exposition()
    assert len(line) == 1_000
    most = MAX_READ_CHARS // 1_000
    assert len(page(f"{line}\n" * most).samples) == 1
    assert parse(f"{line}\n" * (most + 1)) == Malformed(Fault.TOO_MUCH_TO_READ, most + 1)
    many = "".join(f"a{n} 1\n" for n in range(MAX_SAMPLES + 1))
    assert parse(many) == Malformed(Fault.TOO_MANY_SAMPLES, MAX_SAMPLES + 1)
    assert isinstance(parse(many.removesuffix(f"a{MAX_SAMPLES} 1\n")), Exposition)


PIECES = st.sampled_from(
    [
        "a",
        "b_total",
        "{",
        "}",
        '"',
        "\\",
        "=",
        ",",
        " ",
        "\t",
        "\n",
        "\r",
        "#",
        "# TYPE",
        "# HELP",
        "1",
        "-1",
        "1.5e9",
        "NaN",
        "+Inf",
        "_",
        "x",
        '{x="1"} ',
        "\x00",
        "\x85",
        "\u2028",
        "\ud800",
    ]
)


@settings(deadline=None, derandomize=True)
@given(st.text() | st.lists(PIECES, max_size=40).map("".join))
def test_no_text_raises(text: str) -> None:
    got = parse(text)
    assert isinstance(got, Exposition | Malformed)
    assert got == parse(text) or "nan" in repr(got)


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)


@settings(deadline=None, derandomize=True)
@given(NAMES, LABELS, st.floats())
def test_what_is_written_is_read(name: str, labels: dict[str, str], value: float) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    pairs = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    (sample,) = page(f"{name}{{{pairs}}} {value!r}").samples
    assert (sample.name, dict(sample.labels)) == (name, labels)
    assert sample.value == value or math.isnan(value)


def test_the_worst_page_is_read_in_bounded_time() -> None:
    for piece in ('\\"', 'a="",', "\\", '"', "{", ",x"):
        line = ('a{x="' + piece * MAX_LINE_CHARS)[: MAX_LINE_CHARS - 4] + '"} 1'
        start = time.process_time()
        parse(line)
        assert time.process_time() - start < 0.5

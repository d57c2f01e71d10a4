"""Length expressions: a small language that never runs anything."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvcanary.errors import ConfigError
from kvcanary.probing.lengths import NAMES, evaluate

KNOWN: dict[str, float | None] = {
    "context": 1_000,
    "page": 64,
    "limit": 600,
    "reach": 900,
    "output": 36,
    "window": 1,
    "pool": 700,
    "prefill.pool": 700,
    "decode.pool": None,
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("context", 1_000),
        ("limit - 1", 599),
        ("pool + page", 764),
        ("midpoint(pool, context)", 850),
        ("min(1.2 * limit, midpoint(limit, reach))", 720),
        ("max(page, 100)", 100),
        ("prefill.pool // 3", 233),
        ("3 * reach / 4", 675),
        ("not window", 0),
        ("not 0", 1),
        ("decode.pool", None),
        ("decode.pool + 1", None),
        ("not decode.pool", None),
        ("min(1, decode.pool)", None),
        ("midpoint(decode.pool, 1)", None),
        ("first_known(decode.pool, 2 * context)", 2_000),
        ("first_known(decode.pool)", None),
        ("1_000", 1_000),
    ],
)
def test_values(expression: str, value: float | None) -> None:
    assert evaluate(expression, KNOWN) == value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("contxt", "there is no name `contxt`; did you mean `context`?"),
        ("decode.pol", "did you mean `decode.pool`?"),
        ("mid(1, 2)", "there is no function `mid`; did you mean `mi"),
        ("", "is not a length expression"),
        ("1 +", "is not a length expression"),
        ("a = 1", "is not a length expression"),
        ("1 / 0", "has no value"),
        ("1 // (context - context)", "has no value"),
        ("1e308 * 10", "has no value"),
        ("1e999", "has no value"),
        ("9 ** 9 ** 9", "not allowed"),
        ("-1", "not allowed"),
        ("True", "not allowed"),
        ("'x'", "not allowed"),
        ("__import__('os').system('true')", "not allowed"),
        ("().__class__", "not allowed"),
        ("pool.__class__", "there is no name `pool.__class__`"),
        ("[x for x in (1,)]", "not allowed"),
        ("(lambda: 1)()", "not allowed"),
        ("max(1, key=2)", "not allowed"),
        ("max(*(1, 2))", "not allowed"),
        ("min()", "`min` takes one value or more"),
        ("midpoint(1)", "`midpoint` takes two values"),
        ("midpoint(1, 2, 3)", "`midpoint` takes two values"),
        ("1 < 2", "not allowed"),
        ("1 if window else 2", "not allowed"),
    ],
)
def test_what_is_not_allowed(expression: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate(expression, KNOWN)
    assert words in str(caught.value)


def test_every_documented_name_can_be_spoken_of_before_it_is_known() -> None:
    for name in NAMES:
        assert evaluate(name, {}) is None


PIECES = st.sampled_from(
    [*NAMES, "min", "max", "midpoint", "first_known", "not ", "(", ")", ",", "+", "-", "*", "/", "//",
     " ", "1", "0", "2.5", "1e300", "**", "%", "[", "]", "{", "}", "'", '"', "\\", "\n", ":", "=", "lambda ",
     "await ", "\0", "é", "🙂", "f'{", "#", "@", "~", "if ", "else ", "_", ".", "0x", "1if", "'''"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=30).map("".join)))
@example("(" * 300 + "1" + ")" * 300)
@example("not " * 5_000 + "1")
@example("+".join(["1"] * 20_000))
@example("1" * 5_000)
@example("\ud800")
@example("x" * 100_000)
@settings(deadline=None, derandomize=True, max_examples=1_000)
def test_any_text_is_a_value_or_a_config_error(text: str) -> None:
    try:
        value = evaluate(text, KNOWN)
        said = ""
    except ConfigError as error:
        value, said = None, str(error)
    assert len(said) < 1_000
    assert value is None or float("-inf") < value < float("inf")

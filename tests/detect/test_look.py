"""What an answer looks like: measured for every kind of text, quickly, whatever the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.canary.prompt import Position
from kvcanary.detect.look import MAX_CHARACTERS, look_of
from kvcanary.detect.output import is_degenerate, is_unexplained
from kvcanary.record.exchange import Exchange
from tests.builders import exchange
from tests.canary.scene import Scene

SCENE = Scene()
PROMPT = SCENE.prompt(1)


def looking_at(text: str) -> Exchange:
    return exchange(1, look=look_of(text, PROMPT))


@pytest.mark.parametrize(
    "text",
    [
        "!" * 40,
        "system" * 20,
        "the answer is " * 20,
        "user\nassistant\nuser\nsystem\nassistant\nfoo",
        "the бык и корова \u0645\u0631\u062d\u0628\u0627 \u6211\u662f\u5f20\u4e09 of abc",
        "KVC-7Q4X and then " + "\n0" * 100,
    ],
)
def test_what_is_degenerate(text: str) -> None:
    assert is_degenerate(looking_at(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "...",
        "KVC-7Q4X-M2N8-RT9B-HJWC",
        "The ledger label of the tenant at the end is KVC-7Q4X-M2N8-RT9B-HJWC and the list goes on.",
        "\u6211\u662f\u5f20\u4e09 KVC-7Q4X-M2N8-RT9B-HJWC",
        "a user asked the system, said the assistant, for the label of a house by the river " * 2,
    ],
)
def test_what_is_not(text: str) -> None:
    assert not is_degenerate(looking_at(text))


def test_the_own_text_of_a_prompt_explains_itself() -> None:
    look = look_of(PROMPT.text()[:6_000].rpartition(" ")[0], PROMPT)
    assert (look.unexplained, look.words > 300) == (0, True)


@pytest.mark.parametrize(
    "text",
    [
        "Dear Mrs Zwiebelfisch, your appointment with the cardiologist was moved to Tuesday",
        "\u4f60\u597d\uff0c\u4f60\u7684\u9884\u7ea6\u5df2\u6539\u5230\u661f\u671f\u4e8c\u4e0b\u5348\u3002"
        * 2,
    ],
)
def test_other_people_s_text_is_not_explained(text: str) -> None:
    assert is_unexplained(looking_at(text))


def test_the_question_s_own_words_are() -> None:
    text = f"{PROMPT.answer_lead} KVC-7Q4X-M2N8-RT9B-HJWC and the list goes on. "
    assert not is_unexplained(looking_at(text))
    assert PROMPT.asked in Position


@given(st.text(max_size=400))
def test_any_text_has_a_look(text: str) -> None:
    look = look_of(text, PROMPT)
    assert 0 <= look.looping <= 1
    assert 0 <= look.unexplained <= look.words


@pytest.mark.parametrize("unit", ["a", "ab ", "x" * 31 + "y", " ", "\u00e9\u4e2d", "KVC-0"])
def test_a_flood_is_looked_at_in_bounded_steps(unit: str) -> None:
    """Only its beginning is: the work does not grow with the flood."""
    short, long = unit * (MAX_CHARACTERS // len(unit) + 1), unit * (1_000_000 // len(unit))
    assert look_of(short, PROMPT) == look_of(long, PROMPT)

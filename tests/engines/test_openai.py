"""What ``/v1/models`` tells."""

import pytest

from kvcanary.engines import openai
from tests.engines.captures import answer, documents


def test_captured_lists_of_models() -> None:
    sglang = answer("sglang-0.5.23-v1_models.json")
    assert openai.models(sglang) == (openai.Model("tiny", 2_048, "tiny"),)
    vllm = answer("vllm-0.32.0-v1_models.json")
    assert openai.models(vllm) == (openai.Model("tiny", 608, "./tiny"),)
    (llamacpp,) = openai.models(answer("llamacpp-11434-v1_models.json"))
    assert (llamacpp.name, llamacpp.context_tokens) == ("tiny.gguf", None)


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "x" * 1_000_000, "a\x1b[31m", "a\nb", "a\u202eb", 5, None, ["x"]]
)
def test_names_that_are_none_are_not_models(name: object) -> None:
    assert openai.models({"data": [{"id": name}, {"id": "fine"}]}) == (openai.Model("fine", None),)


@pytest.mark.parametrize("length", [0, -1, True, 1.5, "9", None, 1 << 60])
def test_lengths_that_are_none_are_unknown(length: object) -> None:
    assert openai.models({"data": [{"id": "m", "max_model_len": length}]}) == (
        openai.Model("m", None),
    )


def test_a_list_without_lengths_for_adapters_has_the_base_model_s() -> None:
    cards = [{"id": "base", "max_model_len": 4_096}, {"id": "adapter", "max_model_len": None}]
    assert openai.context_of(documents(v1_models={"data": cards})) == 4_096
    assert openai.context_of(documents(v1_models={"data": cards[1:]})) is None

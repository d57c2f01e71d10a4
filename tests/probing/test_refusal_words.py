"""Which messages are refusals for length, and which only look like it."""

import pytest

from kvcanary.probing.refusal import (
    Refusal,
    RefusalShape,
    ServerError,
    error_from_text,
    error_in,
    refusal_in,
)


def refused(message: str) -> Refusal | None:
    return refusal_in(error_from_text(message), 400, in_stream=False)


@pytest.mark.parametrize(
    ("message", "limit", "counted"),
    [
        (
            "The decoder prompt (length 658) is longer than the maximum model length of 608.",
            608,
            658,
        ),
        (
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 1108. This model's maximum "
                "context length is 608 tokens and your request has 3 input tokens (1108 > 608 - 3)."
            ),
            608,
            3,
        ),
        ("Requested tokens (2285) exceed context window of 2048", 2048, 2285),
        (
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed "
                "(1048576)."
            ),
            1_048_576,
            1_200_000,
        ),
        ("prompt is too long: 250,000 tokens > 200,000 maximum", 200_000, 250_000),
        ("the input length exceeds the context length", None, None),
        ("litellm.ContextWindowExceededError: OpenAIException", None, None),
        ("Invalid 'messages[0].content': string too long.", None, None),
        ("Input length (800 tokens) exceeds the maximum allowed length (694 tokens).", 694, 800),
    ],
)
def test_a_length_limit_in_many_words(message: str, limit: int | None, counted: int | None) -> None:
    assert refused(message) == Refusal(RefusalShape.FLAT, 400, limit, counted)


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached: tokens per minute exceeded. Limit 30000, requested 700000",
        "The input tokens exceed the rate limit of 30000 tokens per minute",
        "Token quota exceeded for this key",
        "Budget has been exceeded! Current cost: 3, max budget: 2",
        "Request body exceeds the limit of 1048576 bytes",
        "request entity too large",
        "Payload too large: the input exceeds 4 MB",
        "context deadline exceeded",
        "temperature must be <= 2",
        "Invalid 'user': string too long. Expected a string with maximum length 64.",
        "The model `nope` does not exist. Valid aliases: tiny.",
        "Failed to deserialize the JSON body into the target type: prompt: data did not match",
        "stop: at most 4 items",
        "Internal Server Error",
        "CUDA out of memory",
        "",
    ],
)
def test_what_only_looks_like_a_length_limit(message: str) -> None:
    assert refused(message) is None


@pytest.mark.parametrize(
    "value",
    [
        {"error": {"message": "m", "type": "t", "code": 400}},
        {"error": "m", "error_type": "validation"},
        {"object": "error", "message": "m", "code": "400"},
        {"message": "m"},
        {"detail": "m"},
        {"detail": [{"loc": ["body", "prompt"], "msg": "m", "input": "theirs"}]},
    ],
)
def test_error_objects_of_every_shape(value: object) -> None:
    error = error_in(value)
    assert error is not None
    assert error.message == "m"


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "error",
        {},
        {"error": None},
        {"choices": [], "message": "m"},
        {"model": "tiny", "message": {"role": "assistant", "content": "hello"}},
    ],
)
def test_what_is_no_error_object(value: object) -> None:
    assert error_in(value) is None


def test_a_code_counts_as_text_or_as_number() -> None:
    assert _error(code="429").code == 429
    assert _error(code=503).code == 503
    assert _error(code="decode_bad_request").code is None
    assert _error(code=True).code is None


def test_numbers_beyond_reason_are_not_taken() -> None:
    assert refused(f"maximum context length is {'9' * 3000} tokens") == Refusal(
        RefusalShape.FLAT, 400, None, None
    )
    assert _error(n_ctx=-1).n_ctx is None


def test_only_the_start_of_a_message_is_looked_at() -> None:
    assert refused("x" * 10_000 + " maximum context length is 5 tokens") is None


def test_hostile_messages_are_judged_without_backtracking() -> None:
    # A pattern that backtracks would keep this test until pytest-timeout ends it.
    for part in (
        "input ",
        "tokens ",
        "model ",
        "max_tokens ",
        "9",
        "9,999",
        "(",
        "prompt length (",
    ):
        refused(part * 4_000)


def test_the_server_s_words_are_in_no_repr() -> None:
    error = ServerError(nested=True, code=400, message="their text", kind="their kind")
    assert "their" not in repr(error)


def _error(**fields: object) -> ServerError:
    error = error_in({"error": {"message": "m", **fields}})
    assert error is not None
    return error

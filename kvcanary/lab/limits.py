"""What a worker accepts, and the engines' words when it does not (as captured from SGLang 0.5.23 and
vLLM 0.32.0)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens that follow from a worker's context limit and pool."""

    context_tokens: int
    pool_tokens: int

    @property
    def max_req_len(self) -> int:
        """The longest sequence, output included."""
        return min(self.context_tokens - 1, self.pool_tokens - 1)

    @property
    def max_req_input_len(self) -> int:
        """The shortest prompt that is refused; the longest accepted is one less."""
        return self.max_req_len - 5

    def output_room(self, prompt_tokens: int) -> int:
        """Output tokens that fit behind a prompt; what was asked beyond is clipped silently."""
        return max(1, self.max_req_len - prompt_tokens - 1)


@dataclass(frozen=True)
class VllmLimits(Limits):
    """vLLM's: the context limit (``max_model_len``) alone, since no pool is smaller."""

    @property
    def max_req_len(self) -> int:
        """The longest sequence, output included."""
        return self.context_tokens

    @property
    def max_req_input_len(self) -> int:
        """The shortest prompt that is refused: one token of output has to fit."""
        return self.context_tokens

    def output_room(self, prompt_tokens: int) -> int:
        """Output tokens that fit behind a prompt; what was asked beyond is clipped."""
        return self.context_tokens - prompt_tokens


@dataclass(frozen=True)
class Refusal:
    """An answer that says no. ``by``: ``front``, ``prefill`` or ``decode``; ``parameter``: the field
    that is wrong, as vLLM names it."""

    message: str
    by: str
    status: int = 400
    parameter: str | None = None


def over_context(prompt_tokens: int, context_tokens: int) -> Refusal:
    """The prompt alone reaches the context limit."""
    return Refusal(
        f"The input ({prompt_tokens} tokens) is longer than the model's context length "
        f"({context_tokens} tokens).",
        by="front",
    )


def over_context_with_output(prompt_tokens: int, output_tokens: int, context: int) -> Refusal:
    """Prompt and requested output together exceed the context limit."""
    return Refusal(
        f"Requested token count exceeds the model's maximum context length of {context} tokens. "
        f"You requested a total of {prompt_tokens + output_tokens} tokens: {prompt_tokens} tokens "
        f"from the input messages and {output_tokens} tokens for the completion. Please reduce the "
        "number of tokens in the input messages or the completion to fit within the limit.",
        by="front",
    )


def output_over_context(output_tokens: int, context_tokens: int) -> Refusal:
    """A chat asks for more output than the context limit. (The missing space is the engine's.)"""
    return Refusal(
        f"max_completion_tokens is too large: {output_tokens}.This model supports at most "
        f"{context_tokens} completion tokens.",
        by="front",
    )


def no_such_rank(rank: int) -> Refusal:
    """A request asks for a DP rank that there is not."""
    return Refusal(f"data_parallel_rank {rank} is out of range", by="front")


def no_such_adapter(adapters: tuple[str, ...]) -> Refusal:
    """A request asks for an adapter that is not loaded."""
    loaded = ", ".join(adapters)
    return Refusal(f"The requested LoRA adapter is not loaded. Loaded: {loaded}.", by="front")


def over_pool(prompt_tokens: int, max_req_input_len: int, by: str) -> Refusal:
    """The prompt does not fit a worker's pool."""
    return Refusal(
        f"Input length ({prompt_tokens} tokens) exceeds the maximum allowed length "
        f"({max_req_input_len} tokens). Use a shorter input or enable --allow-auto-truncate.",
        by=by,
    )


def no_such_model(asked: str, served: str, by: str) -> Refusal:
    """vLLM looks at the name; SGLang takes any."""
    message = f"The model `{asked:.100}` does not exist. Valid aliases: {served}."
    return Refusal(message, by, 404, "model")


def vllm_refusal(
    prompt_tokens: int, output_tokens: int | None, context: int, *, chat: bool, by: str
) -> Refusal | None:
    """What vLLM's API server refuses, before the engine sees it; None for the rest, of which output
    beyond the context limit is clipped."""
    if prompt_tokens == context:
        return Refusal(
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            by,
            parameter="max_tokens",
        )
    if prompt_tokens > context:
        return Refusal(
            f"This model's maximum context length is {context} tokens. However, your prompt contains "
            f"at least {context + 1} input tokens, which exceeds this limit even without any output "
            "tokens. Please reduce the length of the input prompt. (parameter=input_tokens, "
            f"value={context + 1})",
            by,
            parameter="input_tokens",
        )
    if chat and (output_tokens or 0) > context:
        return Refusal(
            f"max_tokens={output_tokens} cannot be greater than max_model_len={context}. Please "
            f"request fewer output tokens. (parameter=max_tokens, value={output_tokens})",
            by,
            parameter="max_tokens",
        )
    return None

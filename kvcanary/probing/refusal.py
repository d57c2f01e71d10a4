"""What a server's error says: is it a refusal for length, and which numbers does it name?

The words are those of SGLang, vLLM, TensorRT-LLM, llama.cpp, TGI and the OpenAI API, as captured
or as quoted in their issue trackers; bodies come flat (SGLang, TensorRT-LLM, TGI), nested (vLLM,
llama.cpp, sglang-router) or inside a stream that began with 200. Numbers in such messages are
limits, not prompt lengths that anyone measured.

The text of an error is other people's data: it is looked at here and kept nowhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MAX_MESSAGE_CHARS = 4_000
"""As much of an error's message as is looked at; some servers repeat the whole prompt."""

_MAX_NUMBER = 10**15


class RefusalShape(StrEnum):
    """Where the refusal stood."""

    FLAT = "flat"
    NESTED = "nested"
    IN_STREAM = "in_stream"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal that names a length or context limit.

    Attributes:
        status: the error's own code where it is a number, else the HTTP status.
        limit_tokens: the number that the message gives as the limit; engines differ in whether
            a prompt of exactly that length is accepted (SGLang: no).
        counted_tokens: the prompt's tokens as the message counts them; vLLM says "at least 609"
            for text, so it may be less than the prompt's length.
    """

    shape: RefusalShape
    status: int | None
    limit_tokens: int | None
    counted_tokens: int | None


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error object of any shape. Its text stays in memory and out of every ``repr``."""

    nested: bool
    code: int | None
    message: str = field(repr=False)
    kind: str = field(repr=False)  # `type`, a textual `code` and `param`, joined
    n_ctx: int | None = None
    n_prompt_tokens: int | None = None

    @property
    def names_quota(self) -> bool:
        """It is about a rate, a quota or a budget: a limit of the key, not of the context."""
        return bool(_QUOTA.search(self.message) or _QUOTA.search(self.kind))

    @property
    def names_model(self) -> bool:
        """It says that there is no such model."""
        return bool(_NO_MODEL_KIND.search(self.kind) or _NO_MODEL.search(self.message))

    @property
    def names_limit(self) -> bool:
        """It names a length or context limit."""
        if self.names_quota or _BYTES.search(self.message):
            return False
        text = f"{self.kind}\n{self.message}"
        return bool(_LIMIT_KIND.search(text) or _LIMIT.search(self.message))


def error_in(value: object) -> ServerError | None:
    """The error object in a parsed body or event, or None where there is none.

    Accepts ``{"error": {...}}``, ``{"error": "text", ...}``, ``{"object": "error", ...}`` and
    FastAPI's ``{"detail": ...}``.
    """
    if not isinstance(value, Mapping):
        return None
    inner = value.get("error")
    if isinstance(inner, Mapping):
        return _read(inner, nested=True)
    if isinstance(inner, str) and inner:
        return _read({**value, "message": inner}, nested=False)
    if value.get("object") == "error":
        return _read(value, nested=False)
    if "choices" in value:
        return None
    if isinstance(value.get("message"), str):
        return _read(value, nested=False)
    if "detail" in value:
        return _read({"message": _text_of(value["detail"])}, nested=False)
    return None


def error_from_text(text: str) -> ServerError:
    """An error body that is plain text, as routers written in Rust send it."""
    return ServerError(nested=False, code=None, message=text[:MAX_MESSAGE_CHARS], kind="")


def refusal_in(error: ServerError, status: int | None, *, in_stream: bool) -> Refusal | None:
    """The refusal for length that `error` is, or None where it is something else.

    Args:
        status: the HTTP status of the response.
        in_stream: the error stood in an event of a stream.
    """
    if not error.names_limit:
        return None
    limit, counted = _numbers(error.message)
    shape = RefusalShape.NESTED if error.nested else RefusalShape.FLAT
    return Refusal(
        shape=RefusalShape.IN_STREAM if in_stream else shape,
        status=error.code if error.code is not None else status,
        limit_tokens=error.n_ctx if error.n_ctx is not None else limit,
        counted_tokens=error.n_prompt_tokens if error.n_prompt_tokens is not None else counted,
    )


def whole_number(value: object) -> int | None:
    """A count of tokens from a server, or None where it is not a sane one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MAX_NUMBER else None


def _read(source: Mapping[object, object], *, nested: bool) -> ServerError:
    code = source.get("code", source.get("status_code"))  # the latter in SGLang's finish reasons
    number = whole_number(code)
    if isinstance(code, str) and re.fullmatch(r"[1-5]\d\d", code):
        number = int(code)
    words = (source.get(key) for key in ("type", "error_type", "code", "param"))
    return ServerError(
        nested=nested,
        code=number,
        message=_text_of(source.get("message"))[:MAX_MESSAGE_CHARS],
        kind=" ".join(word[:100] for word in words if isinstance(word, str)),
        n_ctx=whole_number(source.get("n_ctx")),
        n_prompt_tokens=whole_number(source.get("n_prompt_tokens")),
    )


def _text_of(value: object) -> str:
    """A message as text; validation errors come as a list of objects with `msg` in them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = (item.get("msg") for item in value[:20] if isinstance(item, Mapping))
        return "; ".join(part for part in parts if isinstance(part, str))
    return ""


def _flags(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE | re.DOTALL)


_QUOTA = _flags(
    r"""per[ _](?:minute|hour|day|second) | rate[ _-]?limit | \bquota
    | \bbudget \s has \s been | \bcredits\b
    | \bbilling | tokens_per_ | \b[rt]p[md]\b"""
)
_NO_MODEL_KIND = _flags(r"\bmodel_not_found\b | \bmodel_not_exist")
_NO_MODEL = _flags(
    r"""\bmodel\b .{0,200}? \b(?:not \s found | (?:does|do) \s not \s exist | not \s available)\b
    | \b(?:invalid|unknown|no \s such) \s model\b"""
)
_LIMIT_KIND = _flags(
    r"""exceed_context_size | context_length_exceeded | contextwindowexceeded
    | context_window_exceeded | \binput_tokens\b"""
)
_LIMIT = _flags(
    r"""
    # a limit called by its name
      \b(?:context|sequence) [ _-]? (?:length|window|size|len)\b
    | \bmax(?:imum)? [ _] (?:model|seq|sequence|input|prompt|allowed) [ _] len(?:gth)?\b
    | \bmax_(?:num|total|input)_tokens\b
    # a prompt or tokens against something
    | \b(?:input|inputs|prompt)\b .{0,80}? \b(?:exceeds? | too \s (?:long|large) | longer \s than)\b
    | \binputs?\b .{0,80}? (?:less \s than | must \s be \s <=)
    | \btokens?\b .{0,80}? \b(?:exceeds? | longer \s than | too \s many)\b
    # the output budget alone
    | max(?:_completion|_new)?_tokens .{0,40}? (?:too \s large | cannot \s be \s greater)
    # vLLM 0.32 for a prompt of exactly the context: nothing is left for the output. We never ask
    # for less than one token, so the zero comes from the limit.
    | max_tokens \s must \s be \s at \s least \s 1, \s got \s -?\d+
    # characters instead of tokens
    | '(?:messages|prompt|input)[^']{0,60}': \s string \s too \s long
    """
)
# The size of a body, which a proxy or a framework limits, is no limit of the context.
_BYTES = _flags(r"\bbytes?\b | \b\d+ \s? [kmg]i?b\b | \b(?:payload|entity|body)\b")

# A number, perhaps with thousands separators, and TensorRT-LLM's "72417.0".
_N = r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.0+)?"
_LIMITS = tuple(
    _flags(pattern.replace("N", _N))
    for pattern in (
        r"maximum \s allowed \s length \s \(N \s tokens",
        r"context \s length \s \(N \s tokens",
        r"maximum \s (?:context|model|sequence) \s length \s (?:of|is) \s N",
        r"max_model_len \s? = \s? N",
        r"max_num_tokens \s \(N\)",
        r"max_seq_len \s \(N\)",
        r"context \s (?:size|window|length) \s (?:\(|of \s) N",
        r"supports \s at \s most \s N",
        r"must \s have \s less \s than \s N \s tokens",
        r"must \s be \s <= \s N",
        r"number \s of \s tokens \s allowed \s \(N\)",
        r"exceeds? \s (?:the \s)? limit \s of \s N",
        r"\b N \s maximum \b",
    )
)
_COUNTS = tuple(
    _flags(pattern.replace("N", _N))
    for pattern in (
        r"(?:input|input \s length|request) \s \(N \s tokens",
        r"\b N \s (?:input \s)? tokens \s from \s the \s input",
        r"(?:contains|has) \s (?:at \s least \s)? N \s (?:input \s)? tokens",
        r"\(N \s in \s the \s (?:messages|prompt)",
        r"messages \s resulted \s in \s N \s tokens",
        r"prompt \s length \s \(N\), \s query \s length \s \(N\)",
        r"splited_prompt_len` \s \(N\) \s - \s `query_token_len` \s \(N\)",
        r"Given: \s N",
        r"token \s count \s \(N\)",
        r"prompt \s \(length \s N\)",
        r"tokens \s \(N\) \s exceed",
        r"too \s long: \s N \s tokens",
    )
)


def _numbers(message: str) -> tuple[int | None, int | None]:
    return _first(_LIMITS, message), _first(_COUNTS, message)


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    """The number of the first pattern that occurs; several groups of one pattern add up."""
    for pattern in patterns:
        match = pattern.search(message)
        if match:
            total = sum(int(group.replace(",", "")) for group in match.groups())
            return total if total <= _MAX_NUMBER else None
    return None

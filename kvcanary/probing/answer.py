"""What a response body says: text of every kind, finish, usage, identity, errors.

`Answer` takes the parsed objects of one response, whole or chunk by chunk, in any order and of
any shape, and never fails: a field of the wrong type is as good as absent. What it keeps is in
memory only.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum

from kvcanary.probing.refusal import ServerError, error_in, whole_number

MAX_TEXT_CHARS = 1_000_000
"""The most text that is kept of one response; our own requests ask for far less."""

_MAX_NAME_CHARS = 256
_MAX_DEPTH = 8
_MAX_RUNNERS_UP = 20
"""``top_logprobs`` of the OpenAI API goes up to 20; no request of ours asks for any."""
_MAX_PARTS = 4_096
"""Events whose ids are kept: more than the tokens of any answer of ours."""
_CHOICE_FIELDS = frozenset(
    {"text", "logprobs", "delta", "message", "finish_reason", "stop_reason", "matched_stop"}
)
_MESSAGE_FIELDS = frozenset(
    {"role", "content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call"}
)
"""What is read by its name."""


class FinishReason(StrEnum):
    """Why the deployment says it stopped."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    ABORT = "abort"
    ERROR = "error"
    OTHER = "other"


class Text:
    """Text that arrives in parts."""

    __slots__ = ("_parts", "chars")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.chars = 0

    def add(self, part: str) -> None:
        """Append `part`."""
        self._parts.append(part)
        self.chars += len(part)

    def joined(self) -> str:
        """All of it, as text that any encoder accepts.

        JSON may escape the two halves of one character in two chunks, or send half of one: the
        halves are put together and a lone one is replaced.
        """
        text = "".join(self._parts)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Answer:
    """The content of one response so far.

    Attributes:
        content, reasoning, refusal_text, tool_text: what the model said, by the field it came in.
        logprob_text: tokens beside it: those of the answer, and the runners-up.
        further_text: what else a message or choice holds, in fields that nobody knows by name; it
            is searched and is no answer.
        fragment: text of events and bodies that could not be parsed, cut-off ones above all;
            it counts as no answer, and detectors see it all the same.
        chunks: streamed events that carried text.
        choices: choices seen, in all events.
        mixed: its parts do not name one response: two ids or models, or a choice that nobody asked for.
        done: ``[DONE]`` came, or the body of an answer that is not streamed was whole.
        malformed: an event or a body was no JSON.
        error: the first error object.
        error_in_stream: it stood in an event.
    """

    def __init__(self, max_text_chars: int = MAX_TEXT_CHARS) -> None:
        self._max_text_chars = max_text_chars
        self.content = Text()
        self.reasoning = Text()
        self.refusal_text = Text()
        self.tool_text = Text()
        self.logprob_text = Text()
        self.further_text = Text()
        self.fragment = Text()
        self._token_bytes = Text()
        self._runners_up = tuple(Text() for _ in range(_MAX_RUNNERS_UP))
        self.mixed = False
        self.chunks = 0
        self.choices = 0
        self.done = False
        self.malformed = False
        self.error: ServerError | None = None
        self.error_in_stream = False
        self.finish_reason: FinishReason | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self._ids: list[str] = []
        self.response_id: str | None = None
        self.model: str | None = None
        self.system_fingerprint: str | None = None

    @property
    def text_chars(self) -> int:
        """Characters of text of every kind."""
        texts = (
            self.content,
            self.reasoning,
            self.refusal_text,
            self.tool_text,
            self.logprob_text,
        )
        return sum(text.chars for text in texts)

    @property
    def is_full(self) -> bool:
        """More text came than is kept."""
        beside = (self.further_text, self._token_bytes, *self._runners_up)
        return self.text_chars + sum(text.chars for text in beside) > self._max_text_chars

    @property
    def stray_ids(self) -> tuple[str, ...]:
        """Ids of parts that stand between parts of the response itself, whose id most parts have.

        An id that is never left again is no stray: some servers make a new one now and then.
        """
        if len(set(self._ids)) < 2:
            return ()
        own = Counter(self._ids).most_common(1)[0][0]
        first, last = self._ids.index(own), len(self._ids) - self._ids[::-1].index(own)
        return tuple(dict.fromkeys(i for i in self._ids[first:last] if i != own))

    def other_text(self) -> str:
        """Text outside content and reasoning: refusals, tool calls, token texts, fragments."""
        texts = (
            self.refusal_text,
            self.tool_text,
            self.logprob_text,
            self._token_bytes,
            *self._runners_up,
            self.further_text,
            self.fragment,
        )
        return "\n".join(text.joined() for text in texts if text.chars)

    def add_event(self, data: str, *, name: str = "", complete: bool = True) -> bool:
        """Take one event of a stream; True if it carried text.

        Args:
            name: the event's name; "error" makes an object without an error key an error too.
            complete: False for an event that was cut off, which may well be no JSON.
        """
        if not data.strip():
            return False
        if data.strip() == "[DONE]":
            self.done = True
            return False
        value = _parsed_object(data)
        if value is None:
            self.malformed = self.malformed or complete
            self._add_fragment(data)
            return False
        if name == "error" and error_in(value) is None:
            value = {"error": value}
        self._note_error(value, in_stream=True)
        before = self.text_chars
        self._read(value)
        carried = self.text_chars > before
        self.chunks += carried
        return carried

    def add_body(self, body: bytes, *, complete: bool = True) -> None:
        """Take a body that is no stream; `complete` is False where it broke off."""
        value = _parsed_object(body)
        if value is None:
            self.malformed = complete
            self._add_fragment(body.decode("utf-8", "replace"))
            return
        self.done = True
        self._note_error(value, in_stream=False)
        self._read(value)

    def _add_fragment(self, text: str) -> None:
        self.fragment.add(text[: max(0, self._max_text_chars - self.fragment.chars)])

    def _note_error(self, value: Mapping[object, object], *, in_stream: bool) -> None:
        error = error_in(value)
        if error is not None and self.error is None:
            self.error, self.error_in_stream = error, in_stream

    def _read(self, value: Mapping[object, object]) -> None:
        self._read_identity(value)
        choices = value.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, Mapping):
                    self._read_choice(choice)
        usage = value.get("usage")
        if isinstance(usage, Mapping):
            self._read_usage(usage)

    def _read_identity(self, value: Mapping[object, object]) -> None:
        response_id, model = _name(value.get("id")), _name(value.get("model"))
        self.mixed = self.mixed or _differ(self.response_id, response_id)
        self.mixed = self.mixed or _differ(self.model, model)
        self.response_id = self.response_id or response_id
        if response_id and len(self._ids) < _MAX_PARTS:
            self._ids.append(response_id)
        self.model = self.model or model
        self.system_fingerprint = self.system_fingerprint or _name(value.get("system_fingerprint"))

    def _read_choice(self, choice: Mapping[object, object]) -> None:
        self.choices += 1
        # we never ask for more than one choice
        self.mixed = self.mixed or choice.get("index", 0) not in (0, None)
        _gather(choice.get("text"), self.content)
        self._read_logprobs(choice.get("logprobs"))
        for key in ("delta", "message"):
            message = choice.get(key)
            if isinstance(message, Mapping):
                self._read_message(message)
        _gather(_without(choice, _CHOICE_FIELDS), self.further_text)
        finish = choice.get("finish_reason")
        if isinstance(finish, Mapping):  # SGLang's own shape: {"type": "abort", "message": ...}
            if finish.get("type") == "abort":
                self._note_error({"error": finish}, in_stream=True)
            finish = finish.get("type")
        if isinstance(finish, str) and finish:
            self.finish_reason = _finish_reason(finish)

    def _read_logprobs(self, logprobs: object) -> None:
        """Token texts beside the answer: read like it, since a mixed-up response may differ there.

        Chat: ``content[].token``, its ``bytes`` and ``top_logprobs`` (the same for ``refusal``);
        completions: ``tokens``, and ``top_logprobs`` with the tokens as keys. Runners-up, and bytes,
        are gathered apart: between the tokens they would cut every code in pieces.
        """
        if not isinstance(logprobs, Mapping):
            return
        _gather(logprobs.get("tokens"), self.logprob_text)
        for key in ("content", "refusal"):
            items = logprobs.get(key)
            for item in items if isinstance(items, list) else []:
                if isinstance(item, Mapping):
                    _gather(item.get("token"), self.logprob_text)
                    self._read_runners_up(item.get("top_logprobs"))
                    _gather(_decoded(item.get("bytes")), self._token_bytes)
        ranks = logprobs.get("top_logprobs")
        for rank in ranks if isinstance(ranks, list) else []:
            if isinstance(rank, Mapping):
                self._read_runners_up([{"token": token} for token in rank])

    def _read_runners_up(self, items: object) -> None:
        """The n-th candidates of all tokens make one text."""
        for place, item in enumerate(items[:_MAX_RUNNERS_UP] if isinstance(items, list) else []):
            if isinstance(item, Mapping):
                _gather(item.get("token"), self._runners_up[place])

    def _read_message(self, message: Mapping[object, object]) -> None:
        _gather(message.get("content"), self.content)
        # `reasoning` and `reasoning_content` are two names of one thing; a server that sends both
        # sends the same text twice, or else something that has to be seen.
        thinking = message.get("reasoning_content") or message.get("reasoning")
        _gather(thinking, self.reasoning)
        if message.get("reasoning") != thinking:
            _gather(message.get("reasoning"), self.further_text)
        _gather(message.get("refusal"), self.refusal_text)
        calls = message.get("tool_calls")
        functions = [
            call.get("function")
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, Mapping)
        ]
        for function in (*functions, message.get("function_call")):
            if isinstance(function, Mapping):
                _gather(function.get("name"), self.tool_text)
                _gather(function.get("arguments"), self.tool_text)
        _gather(_without(message, _MESSAGE_FIELDS), self.further_text)

    def _read_usage(self, usage: Mapping[object, object]) -> None:
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        # Servers that send usage with every chunk count up: the last one stands.
        self.prompt_tokens = _latest(usage.get("prompt_tokens"), self.prompt_tokens)
        self.completion_tokens = _latest(usage.get("completion_tokens"), self.completion_tokens)
        self.cached_tokens = _latest(cached, self.cached_tokens)


def _parsed_object(data: str | bytes) -> Mapping[object, object] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _differ(before: str | None, now: str | None) -> bool:
    return None not in (before, now) and before != now


def _without(fields: Mapping[object, object], known: frozenset[str]) -> Mapping[object, object]:
    return {key: value for key, value in fields.items() if key not in known}


def _decoded(values: object) -> str | None:
    """A token's bytes as text; None where they are none."""
    if not isinstance(values, list):
        return None
    whole = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 256 for v in values)
    return bytes(values).decode("utf-8", "replace") if whole else None


def _latest(value: object, before: int | None) -> int | None:
    number = whole_number(value)
    return before if number is None else number


def _finish_reason(word: str) -> FinishReason:
    if word == "function_call":
        return FinishReason.TOOL_CALLS
    try:
        return FinishReason(word)
    except ValueError:
        return FinishReason.OTHER


def _name(value: object) -> str | None:
    """An identity field, bounded and without control characters."""
    if not isinstance(value, str) or not value:
        return None
    return "".join(filter(str.isprintable, value[:_MAX_NAME_CHARS]))


def _gather(value: object, into: Text) -> None:
    """Add all text in `value`: a string, or parts as some gateways send them."""
    for part in _strings(value, _MAX_DEPTH):
        into.add(part)


def _strings(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif depth and isinstance(value, list):
        for item in value:
            yield from _strings(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            if key not in {"type", "id"}:
                yield from _strings(item, depth - 1)

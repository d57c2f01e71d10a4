"""How an exchange ended: seven outcomes, a fixed list of reasons, and the rules between them.

`judge` is a pure function of what the client saw. The rules, from the design's promises and from
what engines and proxies were seen to do:

- Only a body that names a length or context limit is a refusal. 413, 502, 503, 504, 524 and a
  connection that is reset during a long prefill are a proxy's doing: not reached.
- A 200 is no success: an error object, a finish of "abort" or a missing end say otherwise.
- Text that came before or after a refusal was still computed from somebody's pages: it is kept,
  and the exchange is an error, not a clean refusal.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from kvcanary.errors import KvcanaryError, NotAnLLMServer, Unauthorized, UnknownModel, Unreachable
from kvcanary.probing.answer import Answer, FinishReason
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.refusal import Refusal, ServerError, refusal_in
from kvcanary.probing.server_text import NO_TEXT, ServerText


class Outcome(StrEnum):
    """What became of one request."""

    ANSWERED = "answered"
    REFUSED = "refused"  # cleanly: a length or context limit is named, no text came
    NOT_REACHED = "not_reached"  # the engine did not see it, as far as one can tell
    TRUNCATED = "truncated"  # the response broke off
    ERRORED = "errored"
    HUNG = "hung"  # the deadline passed
    ABORTED = "aborted"  # we let go of it on purpose


class Reason(StrEnum):
    """Why, in a word that may be stored and counted."""

    # answered
    COMPLETE = "complete"
    NO_DONE = "no_done"  # answered: finish reason, no [DONE]; truncated: neither
    NO_FINISH_REASON = "no_finish_reason"  # [DONE] without a finish reason
    NOT_STREAMED = "not_streamed"  # a stream was asked for, one object came
    # refused
    LENGTH_LIMIT = "length_limit"
    # not reached
    UNKNOWN_HOST = "unknown_host"
    CONNECTION_REFUSED = "connection_refused"
    TLS = "tls"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    NO_SLOT = "no_slot"  # waited for its turn in this client until the deadline
    CLOSED_WHILE_SENDING = "closed_while_sending"
    IDLE_RESET = "idle_reset"  # closed or reset before any byte of a response
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"  # 503, 529
    HTTP_407 = "http_407"  # a proxy wants to know who asks
    HTTP_408 = "http_408"
    HTTP_413 = "http_413"
    HTTP_502 = "http_502"
    HTTP_504 = "http_504"
    HTTP_52X = "http_52x"  # Cloudflare's gateway codes, 520-527
    # truncated
    CUT = "cut"
    CUT_BEFORE_TEXT = "cut_before_text"
    # errored
    IN_STREAM_ERROR = "in_stream_error"
    ERROR_OBJECT = "error_object"  # in a 200 that is no stream
    TEXT_AND_REFUSAL = "text_and_refusal"
    LIMIT_AS_SERVER_ERROR = "limit_as_server_error"  # a 5xx that names a length limit
    ABORTED_BY_SERVER = "aborted_by_server"
    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    NOT_SSE = "not_sse"
    NOT_HTTP = "not_http"
    NO_CHOICES = "no_choices"
    EMPTY_BODY = "empty_body"
    HTML = "html"
    REDIRECT = "redirect"
    UNAUTHORIZED = "unauthorized"
    MODEL_NOT_FOUND = "model_not_found"
    PATH_NOT_FOUND = "path_not_found"
    CLIENT_ERROR = "client_error"  # any other 4xx
    SERVER_ERROR = "server_error"  # any other 5xx
    NOT_A_URL = "not_a_url"  # of a metadata document, where a server named the URL
    # hung
    DEADLINE = "deadline"
    STILL_ANSWERING = "still_answering"  # text was coming in when the deadline passed
    # aborted
    RELEASED = "released"


class Ending(StrEnum):
    """How the transport ended, as the client saw it."""

    COMPLETE = "complete"  # the server ended the response in good order
    BROKEN = "broken"  # reset, closed or garbled within the response
    NO_RESPONSE = "no_response"  # see Seen.transport_reason
    STOPPED = "stopped"  # we stopped reading: the rest could not change the outcome
    TOO_LARGE = "too_large"
    DEADLINE = "deadline"
    RELEASED = "released"


class BodyKind(StrEnum):
    """What the body turned out to be, by its type and its first bytes."""

    EMPTY = "empty"
    SSE = "sse"
    JSON = "json"
    HTML = "html"
    TEXT = "text"  # only looked into when the status is an error
    OTHER = "other"


@dataclass(slots=True)
class Seen:
    """What the client saw of one exchange; filled while it runs, so that an end at any moment
    (deadline, release) leaves what came before."""

    answer: Answer
    stream_asked: bool = True
    status: int | None = None
    kind: BodyKind = BodyKind.EMPTY
    ending: Ending = Ending.NO_RESPONSE
    transport_reason: Reason = Reason.UNREACHABLE
    has_slot: bool = False
    answering: bool = False
    """Whether text was coming in until the end."""
    body_begun: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """An outcome with its reason, and the refusal where one was read."""

    outcome: Outcome
    reason: Reason
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One request with what came back, timings and usage.

    Text and names from the server are in memory only and in no ``repr``.

    Attributes:
        name: the request's name.
        status: the HTTP status; None without a response.
        content, reasoning, other_text: text by the field it came in; `other_text` holds refusals,
            tool calls, token texts and whatever else a message carried. `texts` has all of them.
        prompt_tokens, completion_tokens, cached_tokens: as `usage` claims; None if not given.
        streamed_chunks: events that carried text.
        started_at: when it started, in seconds since the epoch.
        send_seconds: from the start (before connecting) until the whole body was handed to the
            kernel; None if that never happened.
        first_token_seconds: from the end of sending until the first event with text; None if
            nothing was streamed. Sockets buffer, so the server may have read the end later.
        first_token_from_start_seconds: the same event, from the start.
        total_seconds: from the start to the end of the answer.
        refusal: what a refusal said, also where the outcome is not "refused".
        mixed: its parts do not name one response (two ids or models, an index that nobody asked for).
        stray_ids: ids of parts that stand between parts of the response itself.
        response_id, model, system_fingerprint: as the response names itself, at most 256
            characters.
    """

    name: str
    outcome: Outcome
    reason: Reason
    status: int | None
    started_at: float
    total_seconds: float
    content: ServerText = NO_TEXT
    reasoning: ServerText = NO_TEXT
    other_text: ServerText = NO_TEXT
    finish_reason: FinishReason | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    streamed_chunks: int = 0
    send_seconds: float | None = None
    first_token_seconds: float | None = None
    first_token_from_start_seconds: float | None = None
    refusal: Refusal | None = None
    mixed: bool = False
    stray_ids: tuple[str, ...] = field(default=(), repr=False)
    response_id: str | None = field(default=None, repr=False)
    model: str | None = field(default=None, repr=False)
    system_fingerprint: str | None = field(default=None, repr=False)

    @property
    def texts(self) -> tuple[ServerText, ServerText, ServerText]:
        """All text that came, for detectors: content, reasoning, other."""
        return (self.content, self.reasoning, self.other_text)


def judge(seen: Seen) -> Judgement:
    """The outcome of what was seen."""
    over = seen.answer.done and seen.kind in {BodyKind.SSE, BodyKind.JSON}
    if not over:  # an answer that is complete stays complete, however the connection went
        early = _by_ending(seen)
        if early is not None:
            return early
    status = seen.status or 0
    if 300 <= status < 400:
        return Judgement(Outcome.ERRORED, Reason.REDIRECT)
    if status >= 400:
        return _by_error_status(seen, status)
    if seen.answer.error is not None:
        return _by_error(seen, seen.answer.error)
    return _by_answer(seen)


def _by_ending(seen: Seen) -> Judgement | None:
    match seen.ending:
        case Ending.RELEASED:
            return Judgement(Outcome.ABORTED, Reason.RELEASED)
        case Ending.DEADLINE:
            if not seen.has_slot:
                return Judgement(Outcome.NOT_REACHED, Reason.NO_SLOT)
            if not seen.body_begun:
                return Judgement(Outcome.NOT_REACHED, Reason.CONNECT_TIMEOUT)
            reason = Reason.STILL_ANSWERING if seen.answering else Reason.DEADLINE
            return Judgement(Outcome.HUNG, reason)
        case Ending.NO_RESPONSE:
            garbled = seen.transport_reason is Reason.NOT_HTTP
            outcome = Outcome.ERRORED if garbled else Outcome.NOT_REACHED
            return Judgement(outcome, seen.transport_reason)
        case Ending.TOO_LARGE:
            return Judgement(Outcome.ERRORED, Reason.TOO_LARGE)
        case Ending.BROKEN if (
            (seen.status or 0) < 300
            and seen.answer.finish_reason is None
            and seen.answer.error is None
        ):
            reason = Reason.CUT if seen.answer.text_chars else Reason.CUT_BEFORE_TEXT
            return Judgement(Outcome.TRUNCATED, reason)
        case _:
            return None


_NOT_REACHED_STATUSES = {
    407: Reason.HTTP_407,
    408: Reason.HTTP_408,
    413: Reason.HTTP_413,
    429: Reason.RATE_LIMITED,
    502: Reason.HTTP_502,
    503: Reason.OVERLOADED,
    504: Reason.HTTP_504,
    529: Reason.OVERLOADED,
    **dict.fromkeys(range(520, 528), Reason.HTTP_52X),
}


def _by_error_status(seen: Seen, status: int) -> Judgement:
    error = seen.answer.error
    if error is not None and status != 429 and status not in {401, 403}:
        refusal = refusal_in(error, status, in_stream=False)
        if refusal is not None:
            return _refused(seen, refusal, status)
    if status in _NOT_REACHED_STATUSES:
        return Judgement(Outcome.NOT_REACHED, _NOT_REACHED_STATUSES[status])
    if error is not None and error.names_quota and status < 500 and status not in {401, 403}:
        return Judgement(Outcome.NOT_REACHED, Reason.RATE_LIMITED)
    return Judgement(Outcome.ERRORED, _reason_of_status(seen, status, error))


def _reason_of_status(seen: Seen, status: int, error: ServerError | None) -> Reason:
    if status in {401, 403}:
        return Reason.UNAUTHORIZED
    if status < 500 and error is not None and error.names_model:
        return Reason.MODEL_NOT_FOUND
    if seen.kind is BodyKind.HTML:
        return Reason.HTML
    if status in {404, 405}:
        return Reason.PATH_NOT_FOUND
    return Reason.CLIENT_ERROR if status < 500 else Reason.SERVER_ERROR


def _by_error(seen: Seen, error: ServerError) -> Judgement:
    """An error object although the status is a success."""
    refusal = refusal_in(error, seen.status, in_stream=seen.answer.error_in_stream)
    if refusal is not None:
        return _refused(seen, refusal, refusal.status or 0)
    if error.code == 429 or (error.names_quota and (error.code or 0) < 500):
        return Judgement(Outcome.NOT_REACHED, Reason.RATE_LIMITED)
    if error.code in {502, 503, 504} and not seen.answer.text_chars:
        return Judgement(Outcome.NOT_REACHED, _NOT_REACHED_STATUSES[error.code])
    if seen.answer.finish_reason is FinishReason.ABORT:
        return Judgement(Outcome.ERRORED, Reason.ABORTED_BY_SERVER)
    if error.names_model:
        return Judgement(Outcome.ERRORED, Reason.MODEL_NOT_FOUND)
    reason = Reason.IN_STREAM_ERROR if seen.answer.error_in_stream else Reason.ERROR_OBJECT
    return Judgement(Outcome.ERRORED, reason)


def _refused(seen: Seen, refusal: Refusal, status: int) -> Judgement:
    if seen.answer.text_chars:
        return Judgement(Outcome.ERRORED, Reason.TEXT_AND_REFUSAL, refusal)
    if status >= 500:
        return Judgement(Outcome.ERRORED, Reason.LIMIT_AS_SERVER_ERROR, refusal)
    return Judgement(Outcome.REFUSED, Reason.LENGTH_LIMIT, refusal)


_NO_ANSWER_KINDS = {BodyKind.EMPTY: Reason.EMPTY_BODY, BodyKind.HTML: Reason.HTML}


def _by_answer(seen: Seen) -> Judgement:
    answer, streamed = seen.answer, seen.kind is BodyKind.SSE
    if not streamed and seen.kind is not BodyKind.JSON:
        other = Reason.NOT_SSE if seen.stream_asked else Reason.NOT_JSON
        return Judgement(Outcome.ERRORED, _NO_ANSWER_KINDS.get(seen.kind, other))
    if answer.malformed:
        return Judgement(Outcome.ERRORED, Reason.NOT_JSON)
    if answer.finish_reason in {FinishReason.ABORT, FinishReason.ERROR}:
        return Judgement(Outcome.ERRORED, Reason.ABORTED_BY_SERVER)
    if not answer.done and answer.finish_reason is None:
        return Judgement(Outcome.TRUNCATED, Reason.NO_DONE)
    if not answer.choices:
        return Judgement(Outcome.ERRORED, Reason.NO_CHOICES)
    if not answer.done:
        return Judgement(Outcome.ANSWERED, Reason.NO_DONE)
    if answer.finish_reason is None:
        return Judgement(Outcome.ANSWERED, Reason.NO_FINISH_REASON)
    if seen.stream_asked and not streamed:
        return Judgement(Outcome.ANSWERED, Reason.NOT_STREAMED)
    return Judgement(Outcome.ANSWERED, Reason.COMPLETE)


def raise_for_setup(reply: Reply, endpoint: Endpoint) -> None:
    """Raise if `reply`, best the first of a run, means that the run cannot take place.

    Raises:
        Unreachable, Unauthorized, UnknownModel, NotAnLLMServer: each says what was tried, what
            came back and what to do. Other replies, refusals and overload among them, pass.
    """
    setup = _SETUP.get(reply.reason)
    if setup is None:
        return
    error_type, came_back, to_do = setup
    status = "" if reply.status is None else f" (HTTP {reply.status})"
    raise error_type(
        f"POST {endpoint.completion_url} for the model {endpoint.model!r}: "
        f"{came_back}{status}. {to_do}"
    )


_NO_LLM = "Check that the URL is the base URL of an OpenAI-compatible API (it usually ends in /v1)."
_CERTIFICATE = (
    "Check the server's certificate (for a private authority, give its PEM file), and that http "
    "and https are not mixed up."
)
_REDIRECTED = (
    "a redirect came back, and redirects are not followed, since prompts and key would go to a "
    "host that nobody named"
)
_SETUP: dict[Reason, tuple[type[KvcanaryError], str, str]] = {
    Reason.UNKNOWN_HOST: (
        Unreachable,
        "the host name is not known here",
        "Check the URL's host, and the DNS of this machine.",
    ),
    Reason.CONNECTION_REFUSED: (
        Unreachable,
        "the connection was refused",
        "Check that the server runs and that the port is right.",
    ),
    Reason.TLS: (Unreachable, "TLS failed", _CERTIFICATE),
    Reason.UNREACHABLE: (
        Unreachable,
        "no connection could be made",
        "Check the host, the port and the network in between.",
    ),
    Reason.CONNECT_TIMEOUT: (
        Unreachable,
        "no connection came about in time",
        "Check the host, the port and firewalls in between.",
    ),
    Reason.UNAUTHORIZED: (
        Unauthorized,
        "the credentials were refused",
        "Check the API key and what it may use.",
    ),
    Reason.MODEL_NOT_FOUND: (
        UnknownModel,
        "the server knows no such model",
        "Check the name against the server's list (GET .../models).",
    ),
    Reason.PATH_NOT_FOUND: (NotAnLLMServer, "there is no such path", _NO_LLM),
    Reason.HTML: (NotAnLLMServer, "a web page came back", _NO_LLM),
    Reason.NOT_HTTP: (NotAnLLMServer, "what came back is not HTTP", _NO_LLM),
    Reason.NOT_JSON: (NotAnLLMServer, "what came back is not JSON", _NO_LLM),
    Reason.NOT_SSE: (NotAnLLMServer, "what came back is neither a stream nor JSON", _NO_LLM),
    Reason.REDIRECT: (NotAnLLMServer, _REDIRECTED, "Give the final URL."),
}

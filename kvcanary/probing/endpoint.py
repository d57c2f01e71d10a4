"""Where requests go and what is sent: endpoint, secret, prompt text, request, body.

Nothing here does any I/O. The text of a prompt may be megabytes long and a hundred may be in
flight, so a body is never one string: it is JSON before the text, the text in pieces, and JSON
after it, with the exact length known beforehand.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

from kvcanary.errors import UsageError

Piece: TypeAlias = bytes | bytearray | memoryview
Extra: TypeAlias = str | int | bool | tuple[tuple[str, str | int | bool], ...]
"""A further field of a request: a scalar, or an object as pairs (so that a request stays hashable)."""

PIECE_BYTES = 300_000
"""The size of a piece, in bytes, that httpx sends best: 1.1 times the cost of one buffer (pieces
of a few bytes: 115 times)."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REQUEST_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PRINTABLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_RESERVED_HEADERS = frozenset(
    {"authorization", "content-length", "content-type", "host", "transfer-encoding", "x-request-id"}
)
RESERVED_FIELDS = frozenset(
    {"model", "messages", "prompt", "max_tokens", "temperature", "stream", "stream_options"}
    | {"user", "stop", "ignore_eos"}
)
"""Fields of a body that kvcanary sets itself."""


UNNAMED = "?"
"""A model that is still to be found out: the only one that is served."""


class Api(StrEnum):
    """Which OpenAI-compatible call is made."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class SecretKey:
    """An API key, or another secret, that shows itself only where it is asked to.

    Its ``repr`` and ``str`` are fixed, it cannot be pickled and has no comparable parts, so that
    it survives logs, ``dataclasses.asdict``, tracebacks with locals and ``pytest --showlocals``.

    Raises:
        UsageError: empty, or with characters that an HTTP header cannot carry.
    """

    __slots__ = ("__reveal",)

    def __init__(self, key: str) -> None:
        if not _PRINTABLE.fullmatch(key):
            del key  # a traceback with locals must not show it
            raise UsageError(
                "The API key (or another secret) is empty or holds spaces around it, line breaks or "
                "characters outside ASCII, which no HTTP header can carry. Nothing was sent. Check where "
                "it comes from."
            )
        self.__reveal: Callable[[], str] = lambda: key

    def reveal(self) -> str:
        """The key itself; call it at the last moment and keep it in no variable."""
        return self.__reveal()

    def __repr__(self) -> str:
        return "SecretKey(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretKey):
            return NotImplemented
        return secrets.compare_digest(self.reveal().encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash((SecretKey, self.reveal()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SecretKey is not written anywhere")


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What a server with mutual TLS asks for: PEM files with the certificate and its private key.

    Attributes:
        key_file: None where ``file`` holds the key, too.
        password: of the key, where it is encrypted.
    """

    file: str
    key_file: str | None = None
    password: SecretKey | None = None


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that every request passes, but for hosts named in ``past``.

    Attributes:
        url: without credentials; checked as an endpoint's is.
        past: host names, domains (``.example.com``) or ``host:port``, as in NO_PROXY.
    """

    url: str
    user: str | None = None
    password: SecretKey | None = None
    past: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", normalised_url(self.url))


@dataclass(frozen=True, slots=True)
class Identity:
    """What a deployment can tell one tenant from another by. What is None is the endpoint's own.

    Attributes:
        headers: further headers, beside the endpoint's; their values are secrets.
        cache_salt: sent as ``cache_salt``: keeps prefix caches apart. Who knows it can probe the cache.
        user: sent as ``user``.
        model: an adapter or another name, sent as ``model``.
    """

    api_key: SecretKey | None = None
    headers: tuple[tuple[str, SecretKey], ...] = field(default=(), repr=False)
    cache_salt: SecretKey | None = None
    user: str | None = field(default=None, repr=False)
    model: str | None = None

    def __post_init__(self) -> None:
        check_headers(self.headers)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One front door, or one worker, as requests are sent to it.

    Attributes:
        base_url: as the user gave it, usually ending in ``/v1``; a trailing slash is dropped and
            nothing is added.
        model: sent as ``model``.
        stream: ask for server-sent events.
        headers: extra headers, sent wherever the key is; their values are secrets.
        fields: extra fields of every body: name, and value as JSON text (hashable, and never shown).
        ca_file: PEM file that replaces the public certificate authorities.
        certificate: shown to servers that ask for one.
        proxy: one that the user named; it comes before the environment's.
        trust_env: take proxies from the environment. Off unless the user asks: a prompt that
            passes a proxy nobody thought of tests the proxy.

    Raises:
        UsageError: a URL that is no http(s) URL, or holds credentials, a query or a fragment;
            headers that HTTP cannot carry, and headers and fields that the client sets itself.
    """

    base_url: str
    model: str
    api: Api = Api.CHAT
    stream: bool = True
    api_key: SecretKey | None = None
    headers: tuple[tuple[str, SecretKey], ...] = field(default=(), repr=False)
    fields: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: str | None = None
    certificate: ClientCertificate | None = None
    proxy: Proxy | None = None
    trust_env: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", normalised_url(self.base_url))
        if not self.model:
            raise UsageError("The model name is empty. Give the name the deployment serves.")
        check_headers(self.headers)
        for name, _ in self.fields:
            if name in RESERVED_FIELDS:
                raise UsageError(
                    f"The extra field {name!r} is set by kvcanary itself. Leave it out."
                )

    @property
    def completion_url(self) -> str:
        """The URL that requests of this API go to."""
        path = "chat/completions" if self.api is Api.CHAT else "completions"
        return f"{self.base_url}/{path}"


def check_headers(headers: Iterable[tuple[str, SecretKey]]) -> None:
    """Raises UsageError for a name that HTTP cannot carry or that the client sets itself."""
    for name, _ in headers:
        if not _TOKEN.fullmatch(name):
            raise UsageError(
                "An extra header has a name that HTTP cannot carry (empty, line break, or outside ASCII). "
                "Nothing was sent."
            )
        if name.lower() in _RESERVED_HEADERS:
            raise UsageError(
                f"The extra header {name!r} is set by kvcanary itself. "
                "Give a key as the API key and leave the others out."
            )


def normalised_url(url: str) -> str:
    """An http(s) URL without trailing slash, checked to hold no secret.

    Raises:
        UsageError: see `Endpoint`. The message never repeats the URL, which may hold a password.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise UsageError("The URL cannot be parsed. Give http(s)://HOST[:PORT]/v1.") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "The URL holds a user name or a password, which would end up in logs and records. "
            "Leave them out of the URL and give the API key as a key."
        )
    is_plain = url.isprintable() and " " not in url
    is_http = parts.scheme in {"http", "https"}
    if not (is_plain and is_http and parts.hostname and port_is_fine):
        raise UsageError("The URL is no http(s) URL with a host. Give http(s)://HOST[:PORT]/v1.")
    if parts.query or parts.fragment:
        raise UsageError(
            "The URL holds a query or a fragment (`?...`, `#...`), which may hold a secret. "
            "Give http(s)://HOST[:PORT]/v1 and send extra values as headers."
        )
    if parts.path.rstrip("/").endswith("/completions"):
        raise UsageError(
            "The URL names one call (.../completions). Give the base URL, usually ending in /v1; "
            "which call is made is an option of its own."
        )
    return url.rstrip("/")


class PromptText(Protocol):
    """The text of a prompt as it stands inside a JSON string: ASCII, escaped where needed."""

    @property
    def size_bytes(self) -> int:
        """The exact sum of the lengths of all pieces."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """The text in pieces of about `PIECE_BYTES`, built on the way; each call starts anew."""
        ...


class PlainText:
    """Any short text as a `PromptText`; the canary's long ones come with their own."""

    __slots__ = ("_escaped",)

    def __init__(self, text: str) -> None:
        self._escaped = json.dumps(text)[1:-1].encode("ascii")

    @property
    def size_bytes(self) -> int:
        return len(self._escaped)

    def pieces(self) -> Iterator[memoryview]:
        view = memoryview(self._escaped)
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]

    def __repr__(self) -> str:
        return f"PlainText({self.size_bytes} bytes)"


ANYBODY = Identity()
"""Sent as the endpoint says."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Temperature is always 0; no seed is sent.

    Attributes:
        name: sent as ``X-Request-Id``, for example ``kvc-3f9a-017``.
        max_tokens: the output budget in tokens, at least 1.
        user: the tenant, sent as ``user`` where its identity has no other.
        identity: what the tenant is sent as.
        headers: further headers of this request alone, such as ``X-data-parallel-rank``.
        extra: further fields of the body, such as ``reasoning_effort``; none that is set here already.
        ignore_eos: ask for all of ``max_tokens``; the field is sent only when set, since servers
            other than vLLM and SGLang may refuse it.
        whole: ask for one object, though the endpoint streams.
        overrides: fields of the body, as JSON text, that are sent in place of whatever stands there.

    Raises:
        UsageError: a name that no header can carry, or a budget below one token.
    """

    name: str
    text: PromptText
    max_tokens: int
    user: str
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    extra: tuple[tuple[str, "Extra"], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    identity: Identity = ANYBODY
    whole: bool = False
    overrides: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not _REQUEST_NAME.fullmatch(self.name):
            raise UsageError("A request name has to be 1-128 of letters, digits, '.', '_', '-'.")
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}; a request asks for at least 1.")


@dataclass(frozen=True, slots=True)
class Body:
    """A request body in three parts; `text` is asked for its pieces only when they are sent."""

    prefix: bytes
    text: PromptText = field(repr=False)
    suffix: bytes

    @property
    def size_bytes(self) -> int:
        """The exact Content-Length."""
        return len(self.prefix) + self.text.size_bytes + len(self.suffix)

    def pieces(self) -> Iterator[Piece]:
        """All of the body, in order.

        Raises:
            ValueError: the text's pieces do not add up to the size it declared.
        """
        yield self.prefix
        left = self.text.size_bytes
        for piece in self.text.pieces():
            left -= len(piece)
            if left < 0:
                break
            yield piece
        if left:
            raise ValueError(
                f"the prompt text declared {self.text.size_bytes} bytes and gave "
                f"{'more' if left < 0 else f'{self.text.size_bytes - left}'}"
            )
        yield self.suffix


def body_of(endpoint: Endpoint, request: Request) -> Body:
    """The body of `request` in the dialect of `endpoint.api`."""
    # The text's place is found by a placeholder that nothing else in the object can hold.
    placeholder = secrets.token_hex(16)
    identity = request.identity
    fields: dict[str, object] = {
        "model": identity.model or endpoint.model,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "stream": endpoint.stream and not request.whole,
        "user": identity.user or request.user,
    }
    if fields["stream"]:
        fields["stream_options"] = {"include_usage": True}
    if request.ignore_eos:
        fields["ignore_eos"] = True
    if request.stop:
        fields["stop"] = list(request.stop)
    if identity.cache_salt is not None:
        fields["cache_salt"] = identity.cache_salt.reveal()
    for name, text in endpoint.fields:
        fields.setdefault(name, json.loads(text))
    for name, value in request.extra:
        given, ours = fields.get(name, {}), dict(value) if isinstance(value, tuple) else value
        # an object of the user's, such as chat_template_kwargs, is added to; of two others his is sent
        merged = isinstance(given, dict) and isinstance(ours, dict)
        fields[name] = {**given, **ours} if merged else fields.get(name, ours)  # type: ignore[dict-item]
    if endpoint.api is Api.CHAT:
        fields["messages"] = [{"role": "user", "content": placeholder}]
    else:
        fields["prompt"] = placeholder
    fields.update((name, json.loads(text)) for name, text in request.overrides)
    prefix, _, suffix = json.dumps(fields).encode("ascii").partition(placeholder.encode("ascii"))
    return Body(prefix, request.text, suffix)

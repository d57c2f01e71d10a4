"""Connections: how they are made and kept, the key on them, and why there is none.

No redirects, no cookies, no compression, no proxy that the user did not ask for.
"""

import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from kvcanary.errors import ConfigError
from kvcanary.probing.endpoint import ANYBODY, ClientCertificate, Endpoint, Identity
from kvcanary.probing.outcome import Reason
from kvcanary.probing.tracebacks import causes_of

CONNECT_SECONDS = 15.0
"""The longest that making a connection may take, inside the deadline."""

IDLE_CONNECTION_SECONDS = 2.0
"""Idle connections are dropped well before servers do it (uvicorn: 5 s), or a request would now
and then meet a connection that is just being closed and look as if it had been reset."""

_SOCKET_OPTIONS: list[tuple[int, int, int]] = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
# Load balancers forget a silent connection after some minutes, which a prefill can take.
for _option, _seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15)):
    if hasattr(socket, _option):
        _SOCKET_OPTIONS.append((socket.IPPROTO_TCP, getattr(socket, _option), _seconds))


def http_client(endpoint: Endpoint, connections: int) -> httpx.AsyncClient:
    """A client that makes at most so many connections, and keeps them for a moment.

    Raises:
        ConfigError: the endpoint's `ca_file` or `certificate` cannot be used.
    """
    context = _tls_context(endpoint.ca_file, endpoint.certificate)
    pool = httpx.Limits(
        max_connections=connections,
        max_keepalive_connections=connections,
        keepalive_expiry=IDLE_CONNECTION_SECONDS,
    )

    def transport(proxy: httpx.Proxy | None = None) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(
            verify=context,
            http1=True,
            http2=False,
            limits=pool,
            proxy=proxy,
            trust_env=False,
            socket_options=_SOCKET_OPTIONS,
        )

    mounts = {
        f"{scheme}://": _Proxied(transport(proxy), transport(), past)
        for scheme, proxy, past in _proxies(endpoint)
    }
    no_cookies = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(
        transport=transport(),
        mounts=mounts,
        cookies=no_cookies,
        headers={"Accept-Encoding": "identity", "User-Agent": "kvcanary"},
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


Past = Callable[[str, int | None], bool]
"""Whether a host and port are reached past the proxy."""


def _proxies(endpoint: Endpoint) -> Iterator[tuple[str, httpx.Proxy, Past]]:
    """The proxy for each scheme: the one that was named, else the environment's where it is to be trusted."""
    named = endpoint.proxy
    if named is not None:
        auth = (
            (named.user, named.password.reveal() if named.password else "") if named.user else None
        )
        for scheme in ("http", "https"):
            yield scheme, httpx.Proxy(named.url, auth=auth), _named_past(named.past)
    elif endpoint.trust_env:
        proxies = urllib.request.getproxies()
        for scheme in ("http", "https"):
            if scheme in proxies:
                yield (
                    scheme,
                    httpx.Proxy(proxies[scheme]),
                    lambda h, _: urllib.request.proxy_bypass(h),
                )


def _named_past(past: Sequence[str]) -> Past:
    def is_past(host: str, port: int | None) -> bool:
        return any(
            host == name.lstrip(".")
            or host.endswith("." + name.lstrip("."))
            or f"{host}:{port}" == name
            for name in past
        )

    return is_past


class _Proxied(httpx.AsyncBaseTransport):
    """A proxy, and past it for some hosts."""

    def __init__(
        self, proxied: httpx.AsyncHTTPTransport, direct: httpx.AsyncHTTPTransport, past: Past
    ) -> None:
        self._proxied, self._direct, self._past = proxied, direct, past

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        past_it = self._past(request.url.host, request.url.port)
        transport = self._direct if past_it else self._proxied
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._proxied.aclose()
        await self._direct.aclose()


def _tls_context(ca_file: str | None, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """Checks certificates against the public authorities, or only against `ca_file`; shows `certificate`.

    Raises:
        ConfigError: a file is missing, unreadable or no PEM, or a key does not fit.
    """
    if ca_file is None:
        context = httpx.create_ssl_context(trust_env=False)
    else:
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:  # ssl.SSLError is one
            what = (
                "no certificates in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            )
            raise ConfigError(
                f"The file of certificate authorities {ca_file!r} could not be used: {what}. "
                "Give a readable PEM file."
            ) from None
    if certificate is not None:
        _show(context, certificate)
    return context


def _show(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    def password() -> str:  # without one OpenSSL would ask the terminal
        return certificate.password.reveal() if certificate.password else ""

    try:
        context.load_cert_chain(certificate.file, certificate.key_file, password)
    except OSError as error:
        key = f" with the key {certificate.key_file!r}" if certificate.key_file else ""
        what = (
            "it is no PEM file, the key does not fit it, or the key's password is missing or wrong"
            if isinstance(error, ssl.SSLError)
            else error.strerror
        )
        raise ConfigError(
            f"The client certificate {certificate.file!r}{key} could not be used: {what}."
        ) from None


class EndpointAuth(httpx.Auth):
    """Adds key and extra headers at the last moment, so that no variable of ours holds them."""

    def __init__(self, endpoint: Endpoint, identity: Identity = ANYBODY) -> None:
        self._endpoint, self._identity = endpoint, identity

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        key = self._identity.api_key or self._endpoint.api_key
        if key is not None:
            request.headers["Authorization"] = f"Bearer {key.reveal()}"
        for name, value in (*self._endpoint.headers, *self._identity.headers):
            request.headers[name] = value.reveal()
        yield request


_CONNECT_REASONS = (
    (ssl.SSLError, Reason.TLS),
    (socket.gaierror, Reason.UNKNOWN_HOST),
    (ConnectionRefusedError, Reason.CONNECTION_REFUSED),
)


def transport_reason(error: httpx.TransportError, *, sending: bool) -> Reason:
    """Why there was no response."""
    causes = tuple(causes_of(error))
    if isinstance(error, httpx.ConnectTimeout):
        return Reason.CONNECT_TIMEOUT
    if isinstance(error, httpx.ConnectError | httpx.ProxyError):
        # Later on an SSLError may only mean that the connection was dropped without a goodbye.
        for kind, reason in _CONNECT_REASONS:
            if any(isinstance(cause, kind) for cause in causes):
                return reason
        return Reason.UNREACHABLE
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
        return Reason.UNREACHABLE
    if isinstance(error, httpx.RemoteProtocolError) and len(causes) > 2:
        # httpx and httpcore each raise from what they caught. A third one is the HTTP parser's
        # complaint; without it the server closed the connection and sent nothing.
        return Reason.NOT_HTTP
    return Reason.CLOSED_WHILE_SENDING if sending else Reason.IDLE_RESET

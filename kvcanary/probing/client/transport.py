"""Connections: how they are made and kept, the key on them, and why there is none.

No redirects, no cookies, no compression, no proxy that the user did not ask for.
"""

import socket
import ssl
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from kvcanary.errors import ConfigError
from kvcanary.probing.endpoint import Endpoint
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
        ConfigError: the endpoint's `ca_file` cannot be used.
    """
    context = _tls_context(endpoint.ca_file)
    pool = httpx.Limits(
        max_connections=connections,
        max_keepalive_connections=connections,
        keepalive_expiry=IDLE_CONNECTION_SECONDS,
    )

    def transport(proxy: str | None = None) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(
            verify=context,
            http1=True,
            http2=False,
            limits=pool,
            proxy=proxy,
            trust_env=False,
            socket_options=_SOCKET_OPTIONS,
        )

    proxies = urllib.request.getproxies() if endpoint.trust_env else {}
    mounts = {
        f"{scheme}://": _Proxied(transport(proxies[scheme]), transport())
        for scheme in ("http", "https")
        if scheme in proxies
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


class _Proxied(httpx.AsyncBaseTransport):
    """The environment's proxy, and past it for the hosts of NO_PROXY."""

    def __init__(self, proxied: httpx.AsyncHTTPTransport, direct: httpx.AsyncHTTPTransport) -> None:
        self._proxied = proxied
        self._direct = direct

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        past_it = urllib.request.proxy_bypass(request.url.host)
        transport = self._direct if past_it else self._proxied
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._proxied.aclose()
        await self._direct.aclose()


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Checks certificates against the public authorities, or only against `ca_file`.

    Raises:
        ConfigError: the file is missing, unreadable or no PEM.
    """
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        what = "no certificates in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"The file of certificate authorities {ca_file!r} could not be used: {what}. "
            "Give a readable PEM file."
        ) from None


class EndpointAuth(httpx.Auth):
    """Adds key and extra headers at the last moment, so that no variable of ours holds them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        if self._endpoint.api_key is not None:
            request.headers["Authorization"] = f"Bearer {self._endpoint.api_key.reveal()}"
        request.headers.update(self._endpoint.headers)
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

"""PromQL queries to a server that speaks Prometheus' API: bounded, strict, and never an exception.

``prometheus_api_client`` makes the requests. It uses ``requests``, which would follow redirects, take
proxies and passwords from the environment and read any amount of data: here it does none of that.
"""

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import requests
from prometheus_api_client import PrometheusConnect
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from kvcanary.deployment.target import PrometheusServer
from kvcanary.engines.exposition import MAX_LINE_CHARS, MAX_SAMPLES
from kvcanary.probing.outcome import Reason
from kvcanary.probing.tracebacks import causes_of
from kvcanary.telemetry.threads import in_thread

MAX_BYTES = 8_000_000
"""Of one answer."""
MAX_POINTS = 200_000
"""Values in one answer."""
MAX_LABELS = 128
"""Of one series."""
MAX_SECONDS = 1e11
"""Beyond it a time is none."""
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
"""Longest wait for one answer."""


@dataclass(frozen=True, slots=True)
class Row:
    """One series of an answer: its labels, and values with their times (Unix seconds, the server's clock)."""

    labels: Mapping[str, str] = field(repr=False)  # other people's text
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Scrape:
    """A target as the server lists it."""

    labels: Mapping[str, str] = field(repr=False)
    url: str


Rows = tuple[Row, ...]
T = TypeVar("T")


class PrometheusApi:
    """Asks one server. Each question has a deadline; a thread that hangs is left behind."""

    def __init__(self, server: PrometheusServer, *, seconds: float = ANSWER_SECONDS) -> None:
        self._server, self._seconds = server, seconds

    async def query(self, promql: str, at: float | None = None) -> Rows | Reason:
        """The vector or matrix that a query gives, or why there is none.

        Args:
            at: the moment, by the server's clock; None: now.
        """
        params = {} if at is None else {"time": f"{at:.3f}"}
        return await self._ask(lambda api: _rows(api.custom_query(promql, params=params)))

    async def targets(self) -> tuple[Scrape, ...] | Reason:
        """The targets that are scraped, with their addresses. Stores that do not scrape have none to tell."""
        return await self._ask(lambda api: _scrapes(api.get_targets(state="active")))

    async def _ask(self, question: Callable[[PrometheusConnect], T | None]) -> T | Reason:
        try:
            return await in_thread(lambda: self._answer(question), self._seconds)
        except TimeoutError:
            return Reason.DEADLINE

    def _answer(self, question: Callable[[PrometheusConnect], T | None]) -> T | Reason:
        """Everything that can go wrong here is the server's doing, and holds its text or our token."""
        bounds = _Bounds(self._seconds)
        try:
            with _session(self._server, bounds) as session:
                api = PrometheusConnect(
                    url=self._server.url.rstrip("/"),
                    session=session,
                    timeout=min(CONNECT_SECONDS, self._seconds),
                    retry=Retry(total=0, redirect=False),  # asked once
                )
                answer = question(api)
        except Exception as error:
            return bounds.reason or _reason(error)
        return Reason.NOT_JSON if answer is None else answer


class _Bounds:
    """A hook of ``requests`` that reads a body within its bounds, and notes why an answer is none."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.reason: Reason | None = None

    def __call__(self, response: requests.Response, *_: object, **__: object) -> requests.Response:
        """Raises _Refused where the answer is none that may be read."""
        status = response.status_code
        if status in _STATUS or status >= 300:
            self.reason = _STATUS.get(status) or (
                Reason.REDIRECT
                if status < 400
                else Reason.CLIENT_ERROR
                if status < 500
                else Reason.SERVER_ERROR
            )
            raise _Refused
        body = bytearray()
        while chunk := response.raw.read1(65_536):
            body += chunk
            if len(body) > MAX_BYTES:
                self.reason = Reason.TOO_LARGE
            elif time.monotonic() > self._until:
                self.reason = Reason.DEADLINE
            if self.reason:
                raise _Refused
        response.raw = io.BytesIO(body)  # what ``requests`` reads from now on
        return response


class _Refused(Exception):  # noqa: N818 - no error: what is looked at is the reason
    """The answer is not read."""


_STATUS = {
    401: Reason.UNAUTHORIZED,
    403: Reason.UNAUTHORIZED,
    404: Reason.PATH_NOT_FOUND,
    405: Reason.PATH_NOT_FOUND,
    429: Reason.RATE_LIMITED,
    503: Reason.OVERLOADED,
}


class _Credentials(AuthBase):
    """Adds token and headers at the last moment, so that no session holds them."""

    def __init__(self, server: PrometheusServer) -> None:
        self._server = server

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._server.token is not None:
            request.headers["Authorization"] = f"Bearer {self._server.token.reveal()}"
        for name, value in self._server.headers:
            request.headers[name] = value.reveal()
        return request


def _session(server: PrometheusServer, bounds: _Bounds) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.auth = _Credentials(server)
    session.verify = server.ca_file or True
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "kvcanary"})
    session.hooks["response"] = [bounds]
    return session


def _reason(error: Exception) -> Reason:
    """Why there is no answer. The error itself goes no further: it holds the request with its token."""
    if isinstance(error, requests.exceptions.SSLError):
        return Reason.TLS
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return Reason.CONNECT_TIMEOUT
    if isinstance(error, requests.exceptions.Timeout):
        return Reason.DEADLINE
    if isinstance(error, requests.exceptions.ConnectionError):
        causes = {type(cause).__name__ for cause in causes_of(error)}
        causes |= {type(getattr(arg, "reason", None)).__name__ for arg in error.args}
        for name, reason in _CAUSES.items():
            if name in causes:
                return reason
        return Reason.UNREACHABLE
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return Reason.NOT_A_URL
    if isinstance(error, OSError) and not isinstance(error, requests.exceptions.RequestException):
        return Reason.TLS  # the file of authorities cannot be read
    return Reason.NOT_JSON


_CAUSES = {
    "NameResolutionError": Reason.UNKNOWN_HOST,
    "ConnectionRefusedError": Reason.CONNECTION_REFUSED,
    "SSLError": Reason.TLS,
    "ProtocolError": Reason.IDLE_RESET,
}


# -- what an answer holds --------------------------------------------------------------------------


def _rows(result: object) -> Rows | None:
    """The series of a result; None when it is none. One that is no series makes the whole none."""
    if not isinstance(result, list) or len(result) > MAX_SAMPLES:
        return None
    rows = []
    left = MAX_POINTS
    for entry in result:
        fields = entry if isinstance(entry, dict) else {}
        labels = _labels(fields.get("metric"))
        values = fields.get("values", [fields.get("value")])
        if labels is None or not isinstance(values, list) or len(values) > left:
            return None
        left -= len(values)
        points = [_point(value) for value in values]
        known = tuple(point for point in points if point is not None)
        if len(known) < len(points):
            return None
        rows.append(Row(labels, known))
    return tuple(rows)


def _point(value: object) -> tuple[float, float] | None:
    match value:
        case [int() | float() as moment, str() as number] if not isinstance(moment, bool):
            try:
                return (float(moment), float(number)) if 0 <= moment < MAX_SECONDS else None
            except ValueError:
                return None
    return None


def _labels(value: object) -> dict[str, str] | None:
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        return None
    fits = all(isinstance(v, str) and len(k) + len(v) <= MAX_LINE_CHARS for k, v in value.items())
    return value if fits else None


def _scrapes(data: object) -> tuple[Scrape, ...] | None:
    active = data.get("activeTargets") if isinstance(data, dict) else None
    if not isinstance(active, list) or len(active) > MAX_SAMPLES:
        return None
    found = []
    for entry in active:
        fields = entry if isinstance(entry, dict) else {}
        labels, url = _labels(fields.get("labels")), fields.get("scrapeUrl")
        if labels is not None and isinstance(url, str) and len(url) <= MAX_LINE_CHARS:
            found.append(Scrape(labels, url))
    return tuple(found)

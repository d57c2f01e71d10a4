"""Metrics to a Prometheus pushgateway, for runs that are over before anybody could scrape them."""

import os
from base64 import b64encode
from collections.abc import Callable
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from prometheus_client.exposition import pushadd_to_gateway

from kvcanary.errors import ConfigError
from kvcanary.record.run import RunRecord
from kvcanary.report.deliver import GATEWAY_CREDENTIALS
from kvcanary.report.metrics import identity, registry

JOB = "kvcanary"
SECONDS = 10.0


def deliver(record: RunRecord, where: str) -> None:
    """Add this run's metrics to the group of its deployment and suite: what is not pushed again stays, so a
    run that does not pass keeps the time of the last that did.

    Raises ConfigError when the gateway does not take them.
    """
    try:
        pushadd_to_gateway(
            where.rstrip("/"),
            job=JOB,
            registry=registry(record),
            grouping_key=identity(record),
            timeout=SECONDS,
            handler=_handler,
        )
    except HTTPError as error:
        error.close()
        raise _refused(where, f"HTTP {error.code}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        told = reason.strerror if isinstance(reason, OSError) and reason.strerror else None
        raise _refused(where, told or type(reason).__name__) from None
    except ValueError:
        raise _refused(where, "what it answers is not HTTP, or the address is none") from None


def _handler(
    url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
) -> Callable[[], None]:
    """Without redirects (a gateway does not answer so, and another host would get the credentials) and
    without proxies from the environment."""
    credentials = os.environ.get(GATEWAY_CREDENTIALS, "")
    if ":" in credentials:
        headers = [*headers, ("Authorization", f"Basic {b64encode(credentials.encode()).decode()}")]

    def push() -> None:
        request = Request(url, data=data, method=method, headers=dict(headers))  # noqa: S310 - checked before
        with build_opener(ProxyHandler({}), _NoRedirects).open(request, timeout=timeout) as answer:
            if answer.status >= 300:
                raise HTTPError(url, answer.status, answer.reason, answer.headers, None)

    return push


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """None: it is an error, as the answer says."""


def _refused(where: str, why: str) -> ConfigError:
    return ConfigError(f"The pushgateway {where} did not take the metrics: {why}.")

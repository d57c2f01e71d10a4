"""Metrics to a Prometheus pushgateway, for runs that are over before anybody could scrape them."""

import os
from collections.abc import Callable
from urllib.error import HTTPError

from prometheus_client.exposition import basic_auth_handler, default_handler, pushadd_to_gateway

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
    user, colon, password = os.environ.get(GATEWAY_CREDENTIALS, "").partition(":")
    if not colon:
        return default_handler(url, method, timeout, headers, data)
    return basic_auth_handler(url, method, timeout, headers, data, user, password)


def _refused(where: str, why: str) -> ConfigError:
    return ConfigError(f"The pushgateway {where} did not take the metrics: {why}.")

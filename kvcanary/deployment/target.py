"""What a command is given: one deployment, how it is reached, and what is known of it beforehand.

``cli/targets.py`` makes one from a URL, ``lab:NAME`` or a deployment file. Values only: nothing here does
any I/O, and secrets live in ``SecretKey`` alone.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from kvcanary.deployment.facts import Role
from kvcanary.probing.endpoint import Endpoint, Identity, SecretKey
from kvcanary.verdict.waivers import Waiver


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """A worker that somebody has listed: it is asked whether the front door names it or not.

    Attributes:
        url: where the engine answers, without a trailing slash.
        metrics_url: its metrics, where they are elsewhere than at ``/metrics`` of ``url``.
        engine: name of its engine; None leaves it to what the server answers.
        api_key: key of this worker; None: no key is sent to it unless discovered ones are trusted.
    """

    role: Role
    url: str
    metrics_url: str | None = None
    engine: str | None = None
    api_key: SecretKey | None = None


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A server that speaks Prometheus' API.

    Attributes:
        url: base URL: ``/api/v1/query`` is added to it.
        selector: labels that every series of this deployment has: ``(("job", "llm"),)``.
        role_label: the label that tells prefill from decode.
        token: sent as a bearer token.
        headers: further headers; their values are secrets.
        ca_file: PEM file that replaces the public certificate authorities.
    """

    url: str
    selector: tuple[tuple[str, str], ...] = ()
    role_label: str | None = None
    token: SecretKey | None = None
    headers: tuple[tuple[str, SecretKey], ...] = field(default=(), repr=False)
    ca_file: str | None = None


class GpuReader(StrEnum):
    """Who tells about GPUs."""

    NVML = "nvml"
    """The driver of the machine that kvcanary runs on."""
    DCGM = "dcgm"
    """A DCGM exporter, asked itself or through the Prometheus server."""


@dataclass(frozen=True, slots=True)
class GpuSource:
    """Where the GPUs of a deployment, or of one of its workers, can be seen.

    Attributes:
        indices: which of the GPUs there; empty: all of them.
        url: an exporter's metrics page; None for NVML, and for DCGM through the Prometheus server.
        selector: labels of the series that belong to it: ``(("Hostname", "gpu-1"),)``.
        worker: URL of the worker that runs on them; None: of the deployment as a whole.
    """

    reader: GpuReader
    indices: tuple[int, ...] = ()
    url: str | None = None
    selector: tuple[tuple[str, str], ...] = ()
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """An opened target.

    Attributes:
        name: what the person typed, for the record: a URL, ``lab:NAME`` or a path.
        endpoint: the front door; its key and headers are sent where a tenant has none of its own.
        context_tokens: the longest request that is promised, prompt and output; None: what the server tells.
        context_source: who promised it.
        output_tokens: the output budget that is promised within it.
        identities: what tenants are sent as, dealt to the run's tenants in turn; empty: all alike.
        trust_discovered: send key and headers to workers that the front door names, too.
    """

    name: str
    endpoint: Endpoint
    context_tokens: int | None = None
    context_source: str = "--context"
    output_tokens: int | None = None
    identities: tuple[Identity, ...] = ()
    workers: tuple[KnownWorker, ...] = ()
    trust_discovered: bool = False
    prometheus: PrometheusServer | None = None
    gpus: tuple[GpuSource, ...] = ()
    waivers: tuple[Waiver, ...] = ()

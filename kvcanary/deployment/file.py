"""The deployment file: what is tested, how it is reached, and what is promised. Usually ``kvcanary.yaml``.

Strict: an unknown key, a wrong type or a missing variable is an error that names file, line and column.
Secrets come from variables (``${NAME}``) or files, never from the text itself, and live in ``SecretKey``
from there on. Relative paths are seen from the file's folder.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kvcanary.deployment.facts import Role
from kvcanary.deployment.file_values import (
    BodyMap,
    FilePath,
    HeaderMap,
    LabelMap,
    Name,
    Private,
    Secret,
    SecretFile,
    Url,
)
from kvcanary.deployment.target import (
    GpuReader,
    GpuSource,
    KnownWorker,
    PrometheusServer,
    Target,
)
from kvcanary.probing.endpoint import (
    UNNAMED,
    Api,
    ClientCertificate,
    Endpoint,
    Identity,
    Proxy,
    SecretKey,
)
from kvcanary.probing.yaml_file import load_yaml
from kvcanary.verdict.waivers import Waiver

MAX_CONTEXT = 1 << 30
MAX_TENANTS = 64
MAX_WORKERS = 256


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _one_of(first: SecretKey | None, second: SecretKey | None, name: str) -> None:
    if first is not None and second is not None:
        raise ValueError(f"`{name}` and `{name}_file` are both given: leave one out")


class _Keyed(_Strict):
    key: Secret | None = None
    """API key, from a variable: `${NAME}`. Sent as `Authorization: Bearer ...`."""
    key_file: SecretFile | None = None
    """File that holds the API key, such as a mounted secret."""

    @model_validator(mode="after")
    def _has_one_key(self) -> "_Keyed":
        _one_of(self.key, self.key_file, "key")
        return self

    @property
    def secret(self) -> SecretKey | None:
        """The key, wherever it comes from."""
        return self.key or self.key_file


class FrontDoor(_Keyed):
    """The OpenAI-compatible endpoint that tenants use."""

    url: Url
    """Base URL, usually ending in `/v1`. The path of a call is added to it."""
    model: Name | None = None
    """Model to test. Default: the only one that the server lists."""
    api: Api = Api.CHAT
    """Which OpenAI-compatible call to use."""
    stream: bool = True
    """Ask for streamed answers."""
    headers: HeaderMap = ()
    """Extra headers of every request to the front door. Their values count as secrets."""
    body: BodyMap = Field(default=(), repr=False)
    """Extra fields of every request body, such as `reasoning_effort: low`."""


class Promises(_Strict):
    """What customers are told."""

    context: int | None = Field(default=None, ge=1, le=MAX_CONTEXT)
    """Tokens of the longest request, prompt and output together. Default: what the server tells."""
    output: int | None = Field(default=None, ge=1, le=MAX_CONTEXT)
    """Tokens of output that a request may ask for, within the context."""

    @model_validator(mode="after")
    def _fits(self) -> "Promises":
        if self.context is not None and self.output is not None and self.output >= self.context:
            raise ValueError(
                "`output` leaves no room for a prompt: it has to be less than `context`"
            )
        return self


class Tenant(_Keyed):
    """What requests of one tenant are sent as. What is left out is as at the front door."""

    headers: HeaderMap = ()
    """Extra headers, beside those of the front door. Their values count as secrets."""
    cache_salt: Private | None = None
    """Sent as `cache_salt`, which keeps the prefix caches of tenants apart. Counts as a secret."""
    user: Name | None = Field(default=None, repr=False)
    """Sent as `user`. Default: a name of kvcanary's own for each tenant of a run."""
    model: Name | None = None
    """Sent as `model`: an adapter, or another name of the model."""


class Worker(_Keyed):
    """An engine process behind the front door. No key is sent to one that has none here."""

    url: Url
    """Where the engine answers."""
    metrics: Url | None = None
    """Its metrics page, where that is not `/metrics` of `url`."""
    engine: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]{0,40}$")] | None = None
    """Its engine, such as `sglang` or `vllm`. Default: what the server answers."""


class Workers(_Strict):
    """Workers by role. They are asked for their capacity whether or not the front door lists them."""

    prefill: tuple[Worker, ...] = ()
    """Workers that only read prompts."""
    decode: tuple[Worker, ...] = ()
    """Workers that only write answers."""
    unified: tuple[Worker, ...] = ()
    """Workers that do both."""

    @model_validator(mode="after")
    def _differ(self) -> "Workers":
        urls = [worker.url for worker in (*self.prefill, *self.decode, *self.unified)]
        if len(urls) > MAX_WORKERS:
            raise ValueError(f"more than {MAX_WORKERS} workers")
        if len(set(urls)) < len(urls):
            raise ValueError("two workers have one `url`")
        return self


class Tls(_Strict):
    """Certificates, for the front door and the workers."""

    ca_file: FilePath | None = None
    """PEM file of a private authority. It replaces the public ones."""
    certificate_file: FilePath | None = None
    """PEM file with the client certificate that the server asks for."""
    key_file: FilePath | None = None
    """PEM file with its private key. Default: the key is in `certificate_file`."""
    key_password: Secret | None = None
    """Password of the private key, from a variable."""

    @model_validator(mode="after")
    def _has_a_certificate(self) -> "Tls":
        if self.certificate_file is None and (self.key_file or self.key_password):
            raise ValueError("`key_file` and `key_password` belong to a `certificate_file`")
        return self


class HttpProxy(_Strict):
    """An HTTP proxy that every request passes."""

    url: Url
    """The proxy, without user name and password."""
    user: Name | None = None
    """User name at the proxy."""
    password: Secret | None = None
    """Password at the proxy, from a variable."""
    no_proxy: tuple[Name, ...] = ()
    """Hosts that are reached without it: a name and all below it, or `host:port`."""


class Prometheus(_Strict):
    """A server that speaks Prometheus' API and scrapes the deployment."""

    url: Url
    """Base URL: `/api/v1/query` is added to it."""
    labels: LabelMap = ()
    """Labels that every series of this deployment has, such as `job: llm`."""
    role_label: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")] | None = None
    """The label whose value is a worker's role."""
    token: Secret | None = None
    """Bearer token, from a variable."""
    token_file: SecretFile | None = None
    """File that holds the bearer token."""
    headers: HeaderMap = ()
    """Extra headers. Their values count as secrets."""
    ca_file: FilePath | None = None
    """PEM file of its private authority. Default: that of `tls`."""

    @model_validator(mode="after")
    def _has_one_token(self) -> "Prometheus":
        _one_of(self.token, self.token_file, "token")
        return self


class Gpus(_Strict):
    """Where GPUs of the deployment can be seen."""

    reader: GpuReader
    """`nvml`: the driver of the machine that kvcanary runs on. `dcgm`: a DCGM exporter."""
    indices: tuple[Annotated[int, Field(ge=0, le=1023)], ...] = ()
    """Which of the GPUs there. Default: all."""
    url: Url | None = None
    """Metrics page of the DCGM exporter. Default: its series in the Prometheus server."""
    labels: LabelMap = ()
    """Labels of their series, such as `Hostname: gpu-1`."""
    worker: Url | None = None
    """URL of the worker that runs on them."""

    @model_validator(mode="after")
    def _fits(self) -> "Gpus":
        if self.reader is GpuReader.NVML and (self.url or self.labels):
            raise ValueError("`url` and `labels` are for the reader `dcgm`")
        return self


class DeploymentFile(_Strict):
    """A deployment: what is tested, how it is reached, and what it promises."""

    front_door: FrontDoor
    """The endpoint that tenants use."""
    promises: Promises = Promises()
    """What customers are told."""
    tenants: tuple[Tenant, ...] = Field(default=(), max_length=MAX_TENANTS)
    """Identities that the tenants of a run are sent as, in turn. Default: all as the front door says."""
    workers: Workers = Workers()
    """Workers by role, where they are to be asked without being discovered."""
    trust_discovered: bool = False
    """Send the key and headers of the front door to workers that it names, too."""
    tls: Tls = Tls()
    """Certificates."""
    proxy: HttpProxy | None = None
    """An HTTP proxy that every request passes. Default: none."""
    trust_env: bool = False
    """Take proxies from the environment, where no `proxy` is given."""
    prometheus: Prometheus | None = None
    """A Prometheus server that scrapes the deployment."""
    gpus: tuple[Gpus, ...] = ()
    """Where GPUs of the deployment can be seen."""
    waivers: tuple[Waiver, ...] = ()
    """Findings that somebody has answered for, until a day."""

    @model_validator(mode="after")
    def _hangs_together(self) -> "DeploymentFile":
        for number, tenant in enumerate(self.tenants):
            if tenant in self.tenants[:number]:
                raise ValueError(
                    f"tenants.{self.tenants.index(tenant)} and tenants.{number} do not differ"
                )
        if self.prometheus is None and any(
            gpus.reader is GpuReader.DCGM and gpus.url is None for gpus in self.gpus
        ):
            raise ValueError("`gpus`: the reader `dcgm` needs a `url`, or a `prometheus` server")
        return self

    def target(self, name: str) -> Target:
        """What commands are given; ``name``: what the person typed."""
        return Target(
            name=name,
            endpoint=self._endpoint(),
            context_tokens=self.promises.context,
            context_source="the deployment file",
            output_tokens=self.promises.output,
            identities=tuple(
                Identity(t.secret, t.headers, t.cache_salt, t.user, t.model) for t in self.tenants
            ),
            workers=tuple(
                KnownWorker(role, w.url, w.metrics, w.engine, w.secret)
                for role, workers in (
                    (Role.PREFILL, self.workers.prefill),
                    (Role.DECODE, self.workers.decode),
                    (Role.UNIFIED, self.workers.unified),
                )
                for w in workers
            ),
            trust_discovered=self.trust_discovered,
            prometheus=self._prometheus(),
            gpus=tuple(
                GpuSource(g.reader, g.indices, g.url, g.labels, g.worker) for g in self.gpus
            ),
            waivers=self.waivers,
        )

    def _endpoint(self) -> Endpoint:
        door, tls, proxy = self.front_door, self.tls, self.proxy
        keys = (door.secret, *(tenant.secret for tenant in self.tenants))
        return Endpoint(
            base_url=door.url,
            model=door.model or UNNAMED,
            api=door.api,
            stream=door.stream,
            # what is asked beside prompts, such as the list of models, needs one, too
            api_key=next((key for key in keys if key is not None), None),
            headers=door.headers,
            fields=door.body,
            ca_file=tls.ca_file,
            certificate=ClientCertificate(tls.certificate_file, tls.key_file, tls.key_password)
            if tls.certificate_file
            else None,
            proxy=Proxy(proxy.url, proxy.user, proxy.password, proxy.no_proxy) if proxy else None,
            trust_env=self.trust_env,
        )

    def _prometheus(self) -> PrometheusServer | None:
        server = self.prometheus
        if server is None:
            return None
        return PrometheusServer(
            url=server.url,
            selector=server.labels,
            role_label=server.role_label,
            token=server.token or server.token_file,
            headers=server.headers,
            ca_file=server.ca_file or self.tls.ca_file,
        )


def load_deployment(path: Path) -> DeploymentFile:
    """Read a deployment file, its variables from the environment.

    Raises ConfigError with ``file:line:column: what is wrong``.
    """
    return load_yaml(path, DeploymentFile, os.getenv)

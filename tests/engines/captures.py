"""Captured answers of real servers, as the documents that engines read."""

import json
from pathlib import Path
from typing import Any

from kvcanary.engines.documents import Documents
from kvcanary.engines.exposition import Exposition, parse

CAPTURED = Path(__file__).parent / "captured"
METRICS = Path(__file__).parents[1] / "telemetry" / "payloads"


def answer(file: str) -> Any:
    """A captured JSON answer."""
    return json.loads((CAPTURED / file).read_text(encoding="utf-8"))


def page(text: str) -> Exposition:
    """Metrics from their text."""
    got = parse(text)
    assert isinstance(got, Exposition)
    return got


def captured_page(file: str) -> Exposition:
    """Captured metrics."""
    path = CAPTURED / file
    return page((path if path.exists() else METRICS / file).read_text(encoding="utf-8"))


def documents(metrics: Exposition | str | None = None, /, **values: object) -> Documents:
    """Documents by path with ``_`` for ``/`` (and no query), and metrics at ``/metrics``."""
    paths = {_PATHS.get(name, f"/{name}"): value for name, value in values.items()}
    pages = {}
    if metrics is not None:
        pages["/metrics"] = page(metrics) if isinstance(metrics, str) else metrics
    return Documents(paths, pages)


_PATHS = {
    "v1_models": "/v1/models",
    "loads": "/v1/loads?include=core,memory,disagg,queues",
    "developer": "/server_info?config_format=json",
    "api_ps": "/api/ps",
    "api_version": "/api/version",
    "engine_info": "/distserve/engine_info",
}


def sglang(**info: object) -> Documents:
    """The captured SGLang server, with fields of its ``/server_info`` changed."""
    return documents(
        captured_page("sglang-0.5.23.prom"),
        server_info=answer("sglang-0.5.23-server_info.json") | info,
        loads=answer("sglang-0.5.23-v1_loads.json"),
        v1_models=answer("sglang-0.5.23-v1_models.json"),
    )


def vllm() -> Documents:
    """The captured vLLM server, without the developers' mode."""
    return documents(
        captured_page("vllm-0.32.0.prom"),
        v1_models=answer("vllm-0.32.0-v1_models.json"),
        version={"version": "0.32.0"},
    )


def llamacpp() -> Documents:
    """The captured llama.cpp server: four slots over one pool."""
    return documents(
        captured_page("llamacpp.prom"),
        props=answer("llamacpp-11434-props.json"),
        slots=answer("llamacpp-11434-slots.json"),
        v1_models=answer("llamacpp-11434-v1_models.json"),
    )

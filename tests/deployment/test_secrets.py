"""SGLang's ``/server_info`` returns keys in clear, vLLM's holds the environment. Nothing of it survives.

Somebody's secret is planted in every text of every document, in every name of a field, and in every label;
then facts, output, record and tracebacks with locals are searched.
"""

import asyncio
import json
import traceback
from pathlib import Path
from typing import Any

import pytest

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment import gauge, routers
from kvcanary.deployment.discovery import discover
from kvcanary.deployment.facts import Facts
from kvcanary.engines import catalogue
from kvcanary.engines.figures import Figures
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint
from tests.cli.command import against, records
from tests.engines.captures import CAPTURED, METRICS, answer
from tests.probing.rogue_server import Call, Handler, rogue_server

SECRET = "sk-Hildegard-Zwiebelfisch"
TELLING = {"url", "worker_type", "build_info", "version", "disaggregation_mode", "owned_by"}
"""Fields whose text is read: a secret is hung onto it, but onto an address it would be part of it."""


def planted(value: Any, name: str = "") -> Any:
    """A document with the secret wherever text can stand."""
    if isinstance(value, dict):
        kept = {k: planted(v, k) for k, v in value.items()}
        return kept | {SECRET: SECRET, "api_key": SECRET, "hf_token": SECRET}
    if isinstance(value, list):
        return [planted(entry, name) for entry in value] + [SECRET] * (not name)
    if isinstance(value, str):
        if name in ("url", "worker_type", "endpoint"):
            return value
        return f"{value}-{SECRET}" if name in TELLING else SECRET
    return value


def planted_page(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines.append(f"{line} {SECRET}")
        else:
            lines.append(
                line.replace("{", f'{{note="{SECRET}",').replace('="tiny"', f'="{SECRET}"')
            )
    return "\n".join(
        [*lines, f"{SECRET.replace('-', '_')} 1", f'sglang:x{{api_key="{SECRET}"}} 1\n']
    )


def document(file: str) -> bytes:
    return json.dumps(planted(answer(file))).encode()


def metrics(file: str) -> bytes:
    path = CAPTURED / file
    return planted_page((path if path.exists() else METRICS / file).read_text()).encode()


SERVERS: dict[str, dict[str, bytes]] = {
    "sglang": {
        "/server_info": document("sglang-0.5.23-server_info.json"),
        "/v1/loads": document("sglang-0.5.23-v1_loads.json"),
        "/v1/models": document("sglang-0.5.23-v1_models.json"),
        "/metrics": metrics("sglang-0.5.23.prom"),
    },
    "vllm": {
        "/server_info": document("vllm-0.32.0-server_info.json"),
        "/version": json.dumps({"version": f"0.32.0+{SECRET}", SECRET: SECRET}).encode(),
        "/v1/models": document("vllm-0.32.0-v1_models.json"),
        "/metrics": metrics("vllm-0.32.0.prom"),
    },
    "llama.cpp": {
        "/props": document("llamacpp-11434-props.json"),
        "/slots": document("llamacpp-11434-slots.json"),
        "/v1/models": document("llamacpp-11434-v1_models.json"),
    },
    "tgi": {"/info": document("tgi-3.2.1-info.json")},
    "triton": {"/metrics": metrics("triton.prom")},
    "dynamo": {"/health": document("dynamo-health.json")},
}


def serving(documents: dict[str, bytes]) -> Handler:
    async def handler(call: Call) -> None:
        body = documents.get(call.path.partition("?")[0])
        head = f"X-Note: {SECRET}\r\n"
        kind = "text/plain" if call.path.endswith("metrics") else "application/json"
        await call.answer(200 if body else 404, body or SECRET.encode(), kind, head)

    return handler


def discovered(engine: str) -> tuple[Facts, int | None]:
    async def exchange() -> tuple[Facts, int | None]:
        async with (
            rogue_server(serving(SERVERS[engine])) as server,
            Client(Endpoint(server.base_url, "tiny")) as client,
        ):
            facts = await discover(client, 4_096, site_key=SiteKey(b"k" * 32))
            read = gauge.make_gauge(client, facts)
            return facts, await read() if read else None

    return asyncio.run(exchange())


@pytest.mark.parametrize("engine", SERVERS)
def test_nothing_of_it_is_in_the_facts(engine: str) -> None:
    facts, used = discovered(engine)
    assert [w.engine for w in facts.workers] == [engine]
    assert facts.front_door == engine
    assert SECRET not in facts.model_dump_json()
    assert SECRET not in repr((facts, used))
    if engine in ("sglang", "vllm", "llama.cpp"):
        (worker,) = facts.workers
        assert worker.pool_tokens, "the planted documents are read all the same"
        assert worker.configuration


FAILS = {
    "while figures are noted": (Figures, "first"),
    "while the engine is told": (catalogue, "engine_of"),
    "while more is asked for": (catalogue, "wanted"),
    "while the worker is described": (catalogue, "described"),
    "while a list is read": (routers, "listing"),
}


@pytest.mark.parametrize("place", FAILS)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_no_traceback_with_locals_shows_it(
    monkeypatch: pytest.MonkeyPatch, engine: str, place: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(*FAILS[place], fails)
    with pytest.raises(LookupError) as caught:
        discovered(engine)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    text = "".join(shown.format())
    assert "a fault of ours" in text
    assert "self = _Scene" in text or "gathered" in text, "locals are shown"
    assert SECRET not in text


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_nothing_of_it_is_printed_or_recorded(engine: str, tmp_path: Path) -> None:
    for output in ("text", "json"):
        (ended,) = against(
            serving(SERVERS[engine]),
            tmp_path,
            ["capacity", "URL", "--model", "tiny", "-o", output],
            extra={"PYTHONDEVMODE": "1"},
        )
        assert ended.code in (0, 1, 3), ended.err
        assert SECRET not in ended.out + ended.err
    written = [path.read_text() for path in records(tmp_path)]
    assert len(written) == 2
    assert not [text for text in written if SECRET in text]

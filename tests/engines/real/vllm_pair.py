"""vLLM on the CPU, as one worker or split into prefill and decode with a connector that can be told to fail."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.engines.real.environments import Environments
from tests.engines.real.fault import Fault, Transfer, transfers
from tests.engines.real.servers import await_health, free_port, served, starting

MODEL = "smollm2"
CONTEXT = 4_096
POOL_BYTES = "96M"
"""A pool of 4,352 tokens for this model: a little more than the context, which is the least vLLM starts with."""
PAGE = 32
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Deployment:
    """A deployment that is up. ``file``: the deployment file that a person would write for it."""

    url: str
    prefill: str
    decode: str
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "kvcanary.yaml"

    def break_with(self, fault: Fault) -> None:
        """From the next transfer on."""
        fault.write(self.folder / "fault.json")

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """What really happened, from the first transfer on."""
        return transfers(self.folder / "transfers.jsonl")


@contextmanager
def prefill_decode(
    environments: Environments,
    folder: Path,
    *,
    prefix_cache: bool = False,
    contexts: tuple[int, int] = (CONTEXT, CONTEXT),
) -> Iterator[Deployment]:
    """A front door, a prefill worker and a decode worker. `contexts`: their ``max_model_len``."""
    storage = folder / "storage"
    storage.mkdir()
    ports = [free_port(), free_port(), free_port()]
    url, prefill, decode = (f"http://127.0.0.1:{port}" for port in ports)
    with ExitStack() as stack:
        halves = []
        for role, where, port, context in zip(
            ("prefill", "decode"), (prefill, decode), ports[1:], contexts, strict=True
        ):
            log = folder / f"{role}.log"
            command = [
                *_command(environments, port, context, prefix_cache=prefix_cache),
                *("--kv-transfer-config", json.dumps(_transfer(role, folder))),
            ]
            process = stack.enter_context(starting(command, log, _environment(environments)))
            halves.append((process, where, log))
        for process, where, log in halves:
            await_health(process, where, log)
        door: list[str | Path] = [
            *(environments.own, "-m", "tests.engines.real.front_door"),
            *("--prefill", prefill, "--decode", decode),
            *("--port", str(ports[0]), "--storage", storage),
        ]
        stack.enter_context(served(door, url, folder / "front-door.log", {"PYTHONPATH": str(ROOT)}))
        deployment = Deployment(f"{url}/v1", prefill, decode, folder)
        _write_file(deployment)
        yield deployment


@contextmanager
def single(
    environments: Environments, folder: Path, *, prefix_cache: bool = True
) -> Iterator[Deployment]:
    """One unified worker, which is its own front door."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = _command(environments, port, CONTEXT, prefix_cache=prefix_cache)
    with served(command, url, folder / "unified.log", _environment(environments)):
        yield Deployment(f"{url}/v1", url, url, folder)


def _command(
    environments: Environments, port: int, context: int, *, prefix_cache: bool
) -> list[str | Path]:
    return [
        *(environments.vllm, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", environments.model, "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--enforce-eager", "--block-size", str(PAGE)),
        *("--max-model-len", str(context), "--kv-cache-memory-bytes", POOL_BYTES),
        # the example connector stores a prompt whole or not at all
        *("--no-enable-chunked-prefill", "--max-num-batched-tokens", str(CONTEXT)),
        "--enable-prompt-tokens-details",
        "--enable-prefix-caching" if prefix_cache else "--no-enable-prefix-caching",
    ]


def _environment(environments: Environments) -> dict[str, str]:
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # threads that wait for each other on cores that have other work to do wait long
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{environments.vllm.parent}:/usr/bin:/bin",
    }


def _transfer(role: str, folder: Path) -> dict[str, object]:
    return {
        "kv_connector": "FaultyConnector",
        "kv_connector_module_path": "tests.engines.real.faulty_connector",
        "kv_role": "kv_producer" if role == "prefill" else "kv_consumer",
        "kv_connector_extra_config": {
            "shared_storage_path": str(folder / "storage"),
            "fault_file": str(folder / "fault.json"),
            "fault_log": str(folder / "transfers.jsonl"),
        },
    }


def _write_file(deployment: Deployment) -> None:
    told = {
        "front_door": {"url": deployment.url, "model": MODEL},
        "promises": {"context": CONTEXT},
        "workers": {
            "prefill": [{"url": deployment.prefill}],
            "decode": [{"url": deployment.decode}],
        },
    }
    deployment.file.write_text(yaml.safe_dump(told, sort_keys=False))

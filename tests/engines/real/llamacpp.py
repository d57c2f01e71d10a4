"""llama.cpp's server: several slots over one pool, or each with a pool of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engines.real.environments import Environments
from tests.engines.real.servers import free_port, served

MODEL = "smollm2"
SLOTS = 4


@contextmanager
def llama_server(
    environments: Environments, folder: Path, *, pool: int, unified: bool
) -> Iterator[str]:
    """The base URL of a server with `pool` tokens: shared by all slots, or a quarter for each."""
    port = free_port()
    command: list[str | Path] = [
        *(environments.llama_server, "-m", environments.weights, "--alias", MODEL),
        *("--host", "127.0.0.1", "--port", str(port), "--metrics", "--slots"),
        *("-c", str(pool), "-np", str(SLOTS), "-t", "1", "--cache-ram", "0"),
        "--kv-unified" if unified else "--no-kv-unified",
    ]
    url = f"http://127.0.0.1:{port}"
    with served(command, url, folder / "llama-server.log"):
        yield f"{url}/v1"

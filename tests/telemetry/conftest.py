"""A real Prometheus server and a driver library in a box, once for all tests here."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import needs
from tests.telemetry.real_prometheus import Scene
from tests.telemetry.real_prometheus import scene as prometheus_scene

PAYLOADS = Path(__file__).parent / "payloads"
SHIM = Path(__file__).with_name("nvml_shim.c")


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """See `real_prometheus.scene`."""
    gpus = (PAYLOADS / "dcgm-l4.prom").read_text() + (PAYLOADS / "dcgm-t4.prom").read_text()
    with prometheus_scene(tmp_path_factory.mktemp("prometheus"), gpus) as scene:
        yield scene


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Folders with a libnvidia-ml.so.1, by what is wrong with it."""
    compiler = needs.program("gcc", "a C compiler makes the driver library of these tests")
    folders = {}
    for kind in ("", "OLD", "DENIED", "HANGS", "NO_DRIVER"):
        folder = folders[kind] = tmp_path_factory.mktemp(f"driver{kind}")
        flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-Wno-unused-variable"]
        flags += [f"-D{kind}"] if kind else []
        library = str(folder / "libnvidia-ml.so.1")
        subprocess.run([compiler, *flags, "-o", library, str(SHIM)], check=True)
    return folders

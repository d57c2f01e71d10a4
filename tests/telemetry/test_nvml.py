"""The real NVML binding over a compiled driver library with four GPUs, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from kvcanary.deployment.facts import Gpu, GpuProcess
from kvcanary.telemetry.nvml import NO_EVENTS, NO_LIBRARY, XidWatch, read_gpus
from tests.cli.command import GUARD_SECONDS

GIB = 1 << 30

READ = """
import json, sys
from kvcanary.telemetry.nvml import XidWatch, read_gpus
indices = json.loads(sys.argv[1])
watch = XidWatch(indices)
watch.start()
while len(watch.xids(2)) < int(sys.argv[2]):
    assert watch._thread.is_alive()
seen = read_gpus("here", indices)
watch.stop(30)
assert not watch._thread.is_alive()
gpus = [g.model_copy(update={"xids": watch.xids(g.index)}).model_dump(mode="json") for g in seen.gpus]
print(json.dumps([gpus, [*seen.notes, *watch.notes]]))
"""


def child(folder: Path, code: str, *arguments: str) -> Any:
    """What Python says in a process that finds the driver library in this folder."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return json.loads(ended.stdout)


def seen(folder: Path, *indices: int, xids: int = 0) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    gpus, notes = child(folder, READ, json.dumps(indices), str(xids))
    return TypeAdapter(tuple[Gpu, ...]).validate_python(gpus), tuple(notes)


def test_four_gpus_of_which_each_has_something_of_its_own(driver: Mapping[str, Path]) -> None:
    (good, short, broken, shared), notes = seen(driver[""], xids=2)
    assert notes == ()
    assert good == Gpu(
        host="here",
        index=0,
        name="NVIDIA H200",
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        total_bytes=141 * GIB,
        reserved_bytes=1 * GIB,
        used_bytes=100 * GIB,
        free_bytes=40 * GIB,
        processes=(GpuProcess(pid=4200, used_bytes=100 * GIB),),
        mig=False,
        uncorrectable_ecc=None,  # ECC is off
        remapped_rows=0,
        remap_pending=False,
        remap_failed=False,
        source="NVML",
    )
    assert (short.total_bytes, short.uncorrectable_ecc) == (133 * GIB, 0)
    assert broken.xids == (79, 48)
    assert (broken.uncorrectable_ecc, broken.remapped_rows, broken.remap_failed) == (5, 3, True)
    assert shared.processes == (
        GpuProcess(pid=666, used_bytes=None),
        GpuProcess(pid=4203, used_bytes=90 * GIB),
    )
    assert (shared.mig, shared.remap_pending) == (True, True)
    assert [gpu.xids for gpu in (good, short, shared)] == [(), (), ()]


def test_only_the_gpus_that_were_named_are_read_and_watched(driver: Mapping[str, Path]) -> None:
    gpus, notes = seen(driver[""], 3, 1, 4)
    assert [gpu.index for gpu in gpus] == [3, 1]
    assert notes == ("GPU 4 is unknown: this machine has 4.",)


def test_an_older_driver_leaves_unknown_what_it_does_not_tell(driver: Mapping[str, Path]) -> None:
    gpus, notes = seen(driver["OLD"])
    assert notes == (NO_EVENTS,)
    for gpu in gpus:
        assert (gpu.used_bytes, gpu.reserved_bytes) == (101 * GIB, None)
        unknown = (gpu.mig, gpu.remapped_rows, gpu.remap_pending, gpu.remap_failed)
        assert unknown == (None,) * 4
        assert gpu.processes
        assert gpu.xids == ()


def test_a_user_who_may_not_ask(driver: Mapping[str, Path]) -> None:
    gpus, notes = seen(driver["DENIED"])
    assert [gpu.processes for gpu in gpus] == [None] * 4
    assert gpus[0].total_bytes == 141 * GIB
    assert notes == (NO_EVENTS,)


def test_a_library_without_its_driver(driver: Mapping[str, Path]) -> None:
    gpus, (note,) = seen(driver["NO_DRIVER"])
    assert gpus == ()
    assert "driver of this machine is not loaded. Run kvcanary on the GPU node" in note


WATCHED = """
import asyncio, json, sys
from kvcanary.deployment.target import GpuReader, GpuSource
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint
from kvcanary.telemetry import gpus
gpus.DRIVER_SECONDS = float(sys.argv[1])
gpus.STOP_SECONDS = 0.2
async def scene():
    source = GpuSource(GpuReader.NVML, indices=(1,), worker="http://decode:30000")
    async with Client(Endpoint("http://127.0.0.1:1/v1", "tiny")) as client:
        async with gpus.GpuWatch(client, [source]) as watch:
            return await watch.read()
seen = asyncio.run(scene())
print(json.dumps([[[g.worker, g.index] for g in seen.gpus], seen.notes]))
"""


def test_a_gpu_is_said_to_be_the_workers(driver: Mapping[str, Path]) -> None:
    assert child(driver[""], WATCHED, "60") == [[["http://decode:30000", 1]], []]


def test_a_driver_that_hangs_is_left_behind(driver: Mapping[str, Path]) -> None:
    gpus, (note,) = child(driver["HANGS"], WATCHED, "0.5")
    assert gpus == []
    assert "does not answer" in note


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def absent(_: str) -> None:
        raise OSError

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", absent)
    assert read_gpus("here").notes == (NO_LIBRARY,)
    watch = XidWatch()
    watch.start()
    watch.stop(60)
    assert (watch.xids(0), watch.notes) == ((), ())

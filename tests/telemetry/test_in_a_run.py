"""What a run records of GPUs and pools: named in a deployment file, and read from the real thing."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kvcanary.record.run import RunRecord
from tests.cli.command import kvcanary, only_record
from tests.telemetry.real_prometheus import Scene

FILE = """
front_door:
  url: {front}
prometheus:
  url: {url}
  labels: {{job: llm}}
  role_label: role
gpus:
  - reader: nvml
    indices: [1, 2]
    worker: {worker}
  - reader: dcgm
    labels: {{modelName: Tesla T4}}
"""


@pytest.fixture(scope="module")
def record(
    scene: Scene, driver: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> RunRecord:
    folder = tmp_path_factory.mktemp("run")
    worker = next(iter(scene.workers))
    file = folder / "kvcanary.yaml"
    file.write_text(FILE.format(front=scene.front, url=scene.url, worker=worker))
    ended = kvcanary(
        folder,
        *("check", str(file), "--suite", "smoke", "-q"),
        extra={"LD_LIBRARY_PATH": str(driver[""])},
    )
    assert ended.code == 1, ended.said  # a GPU that fails
    assert "most in use: P1 " in ended.said
    return only_record(folder)


def test_gpus_are_facts_before_and_after(record: RunRecord, scene: Scene) -> None:
    assert record.facts
    assert record.facts_after
    for facts in (record.facts, record.facts_after):
        assert [(g.source, g.index, g.worker) for g in facts.gpus] == [
            ("NVML", 1, next(iter(scene.workers))),
            ("NVML", 2, next(iter(scene.workers))),
            ("DCGM, Prometheus", 0, None),
        ]
    assert record.facts_after.gpus[1].xids == (79, 48)


def test_what_is_wrong_with_the_gpus_is_found(record: RunRecord) -> None:
    (suspect,) = (f for f in record.findings if f.rule == "hardware/gpu-suspect")
    assert "79" in " ".join(suspect.evidence)


def test_every_worker_has_its_series(record: RunRecord) -> None:
    assert sorted(series.worker for series in record.series) == ["D1", "D2", "P1", "P2"]
    for series in record.series:
        assert series.at_seconds
        assert series.pool_tokens
        assert series.last_tokens is not None


@pytest.mark.parametrize("asked", [(), ("--nvml",)])
def test_the_gpus_of_this_machine_are_read_when_asked_for(
    scene: Scene, driver: Mapping[str, Path], tmp_path: Path, asked: tuple[str, ...]
) -> None:
    """A laptop may have a GPU of its own, which is nobody's deployment."""
    ended = kvcanary(
        tmp_path,
        *("capacity", scene.front, "--context", "4096", *asked),
        extra={"LD_LIBRARY_PATH": str(driver[""])},
    )
    assert ended.code == (1 if asked else 0), ended.said
    record = only_record(tmp_path)
    assert record.facts
    assert [gpu.index for gpu in record.facts.gpus] == ([0, 1, 2, 3] if asked else [])
    assert not any("GPU" in note for note in record.facts.notes)
    rules = {finding.rule for finding in record.findings}
    expected = {"hardware/gpu-short-of-memory", "hardware/stranger-on-gpu", "hardware/gpu-suspect"}
    assert rules == (expected if asked else set())

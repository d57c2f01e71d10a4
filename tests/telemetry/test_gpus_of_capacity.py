"""``kvcanary capacity`` with the GPUs that a deployment file names, through the real binding."""

from collections.abc import Mapping
from pathlib import Path

from kvcanary.record.journal import load
from kvcanary.verdict.findings import Severity
from tests.cli.command import kvcanary
from tests.instrument.served_lab import served


def test_four_gpus_one_short_one_failing_one_with_a_stranger(
    driver: Mapping[str, Path], tmp_path: Path
) -> None:
    file, record = tmp_path / "kvcanary.yaml", tmp_path / "capacity.jsonl"
    with served(tmp_path, "--context", "65536", "healthy") as front:
        file.write_text(f"front_door: {{url: {front}}}\ngpus: [{{reader: nvml}}]\n")
        ended = kvcanary(
            tmp_path,
            *("capacity", str(file), "--record", str(record)),
            extra={"LD_LIBRARY_PATH": str(driver[""])},
        )
    assert ended.code == 1
    found = {f.rule: f for f in load(record).findings}
    assert {rule: f.severity for rule, f in found.items()} == {
        "hardware/gpu-short-of-memory": Severity.CAPACITY,
        "hardware/stranger-on-gpu": Severity.DEGRADED,
        "hardware/gpu-suspect": Severity.DEGRADED,
    }
    assert "8.0 GiB less" in found["hardware/gpu-short-of-memory"].title
    assert "process 666" in found["hardware/stranger-on-gpu"].evidence[0]
    assert "GPUs" in ended.out

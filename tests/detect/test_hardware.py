"""GPUs: missing memory fails, a stranger or a suspicion warns, and what is not told is nothing."""

from typing import Any

import pytest

from kvcanary.deployment.facts import Gpu, GpuProcess
from kvcanary.detect import hardware
from kvcanary.verdict.claims import ClaimName, ExitCode
from kvcanary.verdict.findings import Severity
from kvcanary.verdict.judge import judge
from tests.builders import healthy, sound

GIB = 1 << 30


def gpu(index: int = 0, total: float | None = 80, **fields: Any) -> Gpu:
    defaults = {"host": "gpu-1", "name": "H100", "source": "NVML"}
    size = None if total is None else int(total * GIB)
    return Gpu.model_validate({"index": index, "total_bytes": size, **defaults, **fields})


def processes(*pairs: tuple[int, float | None]) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(pid=pid, used_bytes=None if used is None else int(used * GIB))
        for pid, used in pairs
    )


def test_a_gpu_of_a_set_with_less_memory_fails() -> None:
    (found,) = hardware.findings([gpu(0), gpu(1), gpu(2, total=64), gpu(3)])
    assert (found.rule, found.severity) == ("hardware/gpu-short-of-memory", Severity.CAPACITY)
    assert "16.0 GiB less" in found.title
    assert "to 80% of what it is" in found.remedy
    assert found.evidence == (
        "GPU 2 of gpu-1 (H100) has 64.0 GiB, others of its kind 80.0 GiB (NVML)",
    )


@pytest.mark.parametrize(
    "others",
    [
        [gpu(1, total=79.5)],
        [gpu(1, total=None)],
        [gpu(1, total=24, name="L4")],
        [gpu(1, total=64, host="gpu-2")],
        [],
    ],
    ids=["firmware", "unknown", "another kind", "another host", "alone"],
)
def test_what_is_no_set_is_not_compared(others: list[Gpu]) -> None:
    assert hardware.findings([gpu(0), *others]) == ()


def test_a_stranger_is_who_holds_the_most_of_no_gpu() -> None:
    """TP ranks often hold a little on each other's GPUs: they are known from their own."""
    engine = [
        gpu(0, processes=processes((11, 70), (12, 0.5))),
        gpu(1, processes=processes((12, 70))),
    ]
    assert hardware.findings(engine) == ()
    (found,) = hardware.findings(
        [*engine, gpu(2, processes=processes((13, 60), (99, 8), (98, None)))]
    )
    assert (found.rule, found.severity) == ("hardware/stranger-on-gpu", Severity.DEGRADED)
    assert "process 99 holds 8.0 GiB" in found.evidence[0]
    assert "process 98 holds an unknown amount" in found.evidence[1]
    assert hardware.findings([gpu(processes=None), gpu(processes=())]) == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"uncorrectable_ecc": 3}, "3 uncorrectable ECC errors"),
        ({"remap_failed": True}, "could not be remapped"),
        ({"remap_pending": True}, "waits to be remapped"),
        ({"xids": (31, 79)}, "XID 79"),
        ({"xids": (48,)}, "XID 48"),
    ],
)
def test_suspicion_is_a_warning_that_keeps_nothing_from_passing(
    fields: dict[str, Any], said: str
) -> None:
    (found,) = hardware.findings([gpu(**fields)])
    assert (found.rule, found.severity) == ("hardware/gpu-suspect", Severity.DEGRADED)
    assert said in found.evidence[0]
    deployment = sound().model_copy(update={"gpus": (gpu(**fields),)})
    verdict = judge(healthy(facts=deployment), (ClaimName.CAPACITY,)).verdict
    assert verdict.exit_code is ExitCode.PASS
    (claim,) = (c for c in verdict.claims if c.required)
    assert "warnings: hardware/gpu-suspect" in claim.text


@pytest.mark.parametrize(
    "fields",
    [
        {"uncorrectable_ecc": 0},
        {"remap_failed": False},
        {"xids": (0, 13, 31, 43)},
        {"remapped_rows": 2},
    ],
)
def test_a_fault_of_an_application_and_a_row_that_was_mended_are_no_suspicion(
    fields: dict[str, Any],
) -> None:
    assert hardware.findings([gpu(**fields)]) == ()

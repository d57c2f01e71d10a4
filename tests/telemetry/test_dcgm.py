"""GPUs from a DCGM exporter's text: captured, blank, divided, and nonsense."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.deployment.facts import Gpu
from kvcanary.deployment.target import GpuReader, GpuSource
from kvcanary.engines.exposition import Exposition, Sample, parse
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, SecretKey
from kvcanary.telemetry.dcgm import MAX_COUNT, WANTED, gpus_in
from kvcanary.telemetry.gpus import GpuWatch
from kvcanary.telemetry.nvml import GpusSeen
from tests.probing.rogue_server import Call, Handler, rogue_server, run

PAYLOADS = Path(__file__).parent / "payloads"
L4 = (PAYLOADS / "dcgm-l4.prom").read_text(encoding="utf-8")
T4 = (PAYLOADS / "dcgm-t4.prom").read_text(encoding="utf-8")
BLANK = "9223372036854775794"
MIB = 1 << 20


def gpus(text: str) -> tuple[Gpu, ...]:
    page = parse(text)
    assert isinstance(page, Exposition)
    return gpus_in(page, "the-url", "test")


def told(name: str, value: object, gpu: object = 0, more: str = "") -> str:
    return f'DCGM_FI_DEV_{name}{{gpu="{gpu}",Hostname="node-1"{more}}} {value}\n'


def test_captured_scrapes() -> None:
    assert gpus(L4) == (
        Gpu(
            host="i-030791dc5a37cd257",
            index=0,
            name="NVIDIA L4",
            uuid="GPU-c2f76b33-7953-256e-8f33-1343419b1a1c",
            total_bytes=(22_563 + 470) * MIB,
            reserved_bytes=470 * MIB,
            used_bytes=0,
            free_bytes=22_563 * MIB,
            source="test",
        ),
    )
    assert [(g.host, g.used_bytes) for g in gpus(L4 + T4)] == [
        ("cp-bm14r7", 5_120 * MIB),
        ("i-030791dc5a37cd257", 0),
    ]


def test_hardware_that_has_failed() -> None:
    (gpu,) = gpus(
        told("XID_ERRORS", 79)
        + told("ECC_DBE_VOL_TOTAL", 2)
        + told("UNCORRECTABLE_REMAPPED_ROWS", 3)
        + told("ROW_REMAP_FAILURE", 1)
        + told("ROW_REMAP_PENDING", 0)
    )
    assert (gpu.xids, gpu.uncorrectable_ecc, gpu.remapped_rows) == ((79,), 2, 3)
    assert (gpu.remap_failed, gpu.remap_pending) == (True, False)
    assert gpu.total_bytes is None
    (gpu,) = gpus(told("XID_ERRORS", 0) + told("ROW_REMAP_FAILURE", 0))
    assert (gpu.xids, gpu.remap_failed, gpu.remap_pending) == ((), False, None)


@pytest.mark.parametrize("value", [BLANK, "9.223372036854776e+18", "NaN", "-1", "1.5", "+Inf"])
def test_what_is_blank_or_no_count_is_unknown(value: str) -> None:
    (gpu,) = gpus("".join(told(name.removeprefix("DCGM_FI_DEV_"), value) for name in WANTED))
    assert gpu == Gpu(host="node-1", index=0, source="test")


def test_what_is_told_twice_and_not_alike_is_unknown() -> None:
    both = told("FB_USED", 5) + told("FB_USED", 6, more=',pod="b"') + told("FB_FREE", 1)
    (gpu,) = gpus(both + told("FB_FREE", 1, more=',pod="b"'))
    assert (gpu.used_bytes, gpu.free_bytes) == (None, MIB)


def test_an_instance_of_a_divided_gpu_says_nothing_of_the_whole() -> None:
    part = told("FB_USED", 10, more=',GPU_I_ID="1",GPU_I_PROFILE="1g.10gb"')
    (gpu,) = gpus(part)
    assert (gpu.mig, gpu.used_bytes) == (True, None)
    (gpu,) = gpus(part + told("FB_USED", 70))
    assert (gpu.mig, gpu.used_bytes) == (True, 70 * MIB)


def test_the_host_is_the_first_label_that_tells_one() -> None:
    one = 'DCGM_FI_DEV_FB_USED{gpu="0"} 1\n'
    two = 'DCGM_FI_DEV_FB_USED{gpu="1",hostname="h",instance="10.0.0.1:9400"} 1\n'
    three = 'DCGM_FI_DEV_FB_USED{gpu="2",instance="10.0.0.1:9400"} 1\n'
    four = 'DCGM_FI_DEV_FB_USED{gpu="3",Hostname="\x1b[31m"} 1\n'
    found = [(gpu.host, gpu.index) for gpu in gpus(one + two + three + four)]
    assert found == [("10.0.0.1:9400", 2), ("h", 1), ("the-url", 0), ("the-url", 3)]


TEXTS = st.text(max_size=8) | st.sampled_from(["0", "1", "GPU-00ff", "node-1", "NVIDIA L4"])
SAMPLES = st.builds(
    Sample,
    st.sampled_from([*sorted(WANTED), "up"]),
    st.dictionaries(
        st.sampled_from(["gpu", "UUID", "modelName", "Hostname", "GPU_I_ID", "x"]), TEXTS
    ).map(lambda labels: tuple(sorted(labels.items()))),
    st.floats(),
)


@given(st.lists(SAMPLES, max_size=12).map(tuple))
def test_no_page_raises_and_every_figure_is_a_count(samples: tuple[Sample, ...]) -> None:
    for gpu in gpus_in(Exposition(samples), "the-url", "test"):
        for value in (gpu.used_bytes, gpu.free_bytes, gpu.reserved_bytes):
            assert value is None or (value >= 0 and value % MIB == 0)
        for value in (gpu.uncorrectable_ecc, gpu.remapped_rows, *gpu.xids):
            assert value is None or 0 <= value < MAX_COUNT
        for text in (gpu.host, gpu.name or "", gpu.uuid or ""):
            assert text.isascii()
            assert text.isprintable()
        assert Gpu.model_validate_json(gpu.model_dump_json()) == gpu


# an exporter


def exported(handler: Handler, **fields: object) -> tuple[GpusSeen, list[Call]]:
    async def scene() -> tuple[GpusSeen, list[Call]]:
        async with (
            rogue_server(handler) as server,
            Client(Endpoint(server.base_url, "tiny", api_key=SecretKey("sk-1"))) as client,
        ):
            url = f"{server.base_url.removesuffix('/v1')}/metrics"
            source = GpuSource(GpuReader.DCGM, url=url, **fields)  # type: ignore[arg-type]
            async with GpuWatch(client, [source]) as watch:
                return await watch.read(), server.calls

    return run(scene())


def saying(text: str, status: int = 200) -> Handler:
    async def handler(call: Call) -> None:
        await call.answer(status, text.encode(), "text/plain")

    return handler


def test_an_exporter_is_read_without_the_key() -> None:
    seen, (call,) = exported(saying(L4 + T4), selector=(("Hostname", "cp-bm14r7"),), worker="w")
    assert call.path == "/metrics"
    assert "authorization" not in call.headers
    assert [(gpu.host, gpu.worker) for gpu in seen.gpus] == [("cp-bm14r7", "w")]
    assert seen.gpus[0].source.startswith("DCGM, http://127.0.0.1:")
    assert seen.notes == ()


@pytest.mark.parametrize(
    "handler", [saying("", 500), saying("<html>"), saying("up 1"), saying("DCGM_FI_DEV_FB_USED{")]
)
def test_an_exporter_that_tells_nothing_is_said_to(handler: Handler) -> None:
    seen, _ = exported(handler)
    assert seen.gpus == ()
    (note,) = seen.notes
    assert note.startswith("GPUs are unknown: ")


def test_dcgm_without_a_place_to_ask_is_said_to_lack_one() -> None:
    async def scene() -> GpusSeen:
        endpoint = Endpoint("http://127.0.0.1:1/v1", "tiny")
        async with (
            Client(endpoint) as client,
            GpuWatch(client, [GpuSource(GpuReader.DCGM)]) as watch,
        ):
            return await watch.read()

    assert "exporter's URL or a Prometheus server" in run(scene()).notes[0]

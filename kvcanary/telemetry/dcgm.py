"""GPUs as a DCGM exporter tells them, read from itself or through a Prometheus server.

Source: NVIDIA/dcgm-exporter, ``etc/default-counters.csv``. Memory is in MiB. The XID gauge holds the last
error since the exporter started, 0 for none. What a GPU does not support reads 9223372036854775794.
"""

import math
import re
from collections.abc import Collection, Sequence

from kvcanary.deployment.facts import Gpu
from kvcanary.engines.exposition import Exposition, Sample

MIB = 1 << 20
MAX_COUNT = float(1 << 53)
_FREE, _USED = "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED"
_RESERVED, _TOTAL = "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_TOTAL"
_XID = "DCGM_FI_DEV_XID_ERRORS"
_ECC = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
_REMAPPED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
_REMAP_PENDING = "DCGM_FI_DEV_ROW_REMAP_PENDING"
_REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
AGED = _USED
"""The metric by whose age all of a GPU's are judged: it is on by default, and every GPU has it."""
WANTED = frozenset(
    {_FREE, _USED, _RESERVED, _TOTAL, _XID, _ECC, _REMAPPED, _REMAP_PENDING, _REMAP_FAILURE}
)
"""The metrics that are read."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/()+-]{0,127}")
_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{4,64}")
_INDEX = re.compile(r"[0-9]{1,4}")
_HOSTS = ("Hostname", "hostname", "exported_Hostname", "exported_hostname", "node", "instance")

Place = tuple[str, int]


def gpus_in(page: Exposition, host: str, source: str) -> tuple[Gpu, ...]:
    """The GPUs of a page, by host and index.

    Args:
        host: of those without a label that tells it.
    """
    by_gpu: dict[Place, list[Sample]] = {}
    for sample in page.samples:
        place = place_of(sample.labels, host)
        if sample.name in WANTED and place is not None:
            by_gpu.setdefault(place, []).append(sample)
    return tuple(_gpu(place, samples, source) for place, samples in sorted(by_gpu.items()))


def place_of(labels: Sequence[tuple[str, str]], host: str) -> Place | None:
    """Host and index that labels name; None for what is no GPU's."""
    told = dict(labels)
    index = told.get("gpu", "")
    if not _INDEX.fullmatch(index):
        return None
    names = (told.get(label, "") for label in _HOSTS)
    return next((name for name in names if _NAME.fullmatch(name)), host), int(index)


def _gpu(place: Place, samples: Sequence[Sample], source: str) -> Gpu:
    # an instance of a divided GPU has series of its own, which say nothing of the whole
    whole = [sample for sample in samples if sample.label("GPU_I_ID") in (None, "")]
    free, used, reserved = (_bytes(whole, name) for name in (_FREE, _USED, _RESERVED))
    total = _bytes(whole, _TOTAL)
    if total is None and free is not None and used is not None and reserved is not None:
        total = free + used + reserved
    xid = _count(whole, _XID)
    return Gpu(
        host=place[0],
        index=place[1],
        name=_text(samples, "modelName", _NAME),
        uuid=_text(samples, "UUID", _UUID),
        total_bytes=total,
        reserved_bytes=reserved,
        used_bytes=used,
        free_bytes=free,
        mig=len(whole) < len(samples) or None,
        uncorrectable_ecc=_count(whole, _ECC),
        remapped_rows=_count(whole, _REMAPPED),
        remap_pending=_flag(whole, _REMAP_PENDING),
        remap_failed=_flag(whole, _REMAP_FAILURE),
        xids=(xid,) if xid else (),
        source=source,
    )


def _count(samples: Collection[Sample], name: str) -> int | None:
    """None for what is not told, blank, no whole number, or told twice and not alike."""
    values = {sample.value for sample in samples if sample.name == name}
    value = values.pop() if len(values) == 1 else math.nan
    fits = 0 <= value < MAX_COUNT and value == int(value)
    return int(value) if fits else None


def _bytes(samples: Collection[Sample], name: str) -> int | None:
    mebibytes = _count(samples, name)
    return None if mebibytes is None or mebibytes >= 1 << 30 else mebibytes * MIB


def _flag(samples: Collection[Sample], name: str) -> bool | None:
    value = _count(samples, name)
    return None if value is None else value > 0


def _text(samples: Collection[Sample], label: str, shape: re.Pattern[str]) -> str | None:
    values = (sample.label(label) or "" for sample in samples)
    return next((value for value in values if shape.fullmatch(value)), None)

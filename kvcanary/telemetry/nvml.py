"""GPUs of this machine, as the NVIDIA driver tells them (NVML, through ``pynvml``).

Everything blocks, and a sick driver may hang: callers run this in a thread. What the driver does not tell
(an older one, a missing right, a GPU without the feature) is None.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from kvcanary.deployment.facts import Gpu, GpuProcess

T = TypeVar("T")
MAX_GPUS = 256
MAX_PROCESSES = 256
MAX_XIDS = 64
WAIT_MILLISECONDS = 100
"""One wait for an event; stopping takes so long at most."""
HOW = "Run kvcanary on the GPU node, or name a DCGM exporter in the deployment file."
NO_LIBRARY = f"GPUs are unknown: no NVIDIA driver here (libnvidia-ml.so.1 is not found). {HOW}"
NO_EVENTS = "XID errors during the run are unknown: the driver gives no events of them."
_NO_DRIVER = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_LIBRARY,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        f"GPUs are unknown: the NVIDIA driver of this machine is not loaded. {HOW}"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "GPUs are unknown: this user may not ask the NVIDIA driver. Give it access to /dev/nvidia*."
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "GPUs are unknown: the NVIDIA driver and its library are of different versions. Reboot the machine."
    ),
}


@dataclass(frozen=True, slots=True)
class GpusSeen:
    """GPUs, and in words what could not be seen."""

    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()


class _NoDriver(Exception):  # noqa: N818 - what is told of it is a note
    """NVML cannot be used; the message says why and what to do."""


@contextmanager
def _driver() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = getattr(error, "value", None)
        other = f"GPUs are unknown: the NVIDIA driver answered error {code}. {HOW}"
        raise _NoDriver(_NO_DRIVER.get(code, other)) from None
    try:
        yield
    finally:
        _told(pynvml.nvmlShutdown)


def _told(function: Callable[..., T], *arguments: object) -> T | None:
    """What the driver answers; None where it does not."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def read_gpus(host: str, indices: Collection[int] = ()) -> GpusSeen:
    """The GPUs of this machine, or those with these indices. Raises nothing."""
    try:
        with _driver():
            count = min(_told(pynvml.nvmlDeviceGetCount) or 0, MAX_GPUS)
            wanted = [index for index in indices or range(count) if index < count]
            gpus = [_gpu(host, index) for index in wanted]
    except _NoDriver as reason:
        return GpusSeen(notes=(str(reason),))
    notes = [
        f"GPU {index} is unknown: this machine has {count}." for index in indices if index >= count
    ]
    if not count:
        notes.append(f"GPUs are unknown: the NVIDIA driver here has none. {HOW}")
    return GpusSeen(tuple(gpus), tuple(notes))


def _gpu(host: str, index: int) -> Gpu:
    handle = _told(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Gpu(host=host, index=index, source="NVML")
    memory = _told(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    # the first version counts what is reserved as used
    memory = memory or _told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rows = _told(pynvml.nvmlDeviceGetRemappedRows, handle)
    return Gpu(
        host=host,
        index=index,
        name=_text(_told(pynvml.nvmlDeviceGetName, handle)),
        uuid=_text(_told(pynvml.nvmlDeviceGetUUID, handle)),
        total_bytes=getattr(memory, "total", None),
        reserved_bytes=getattr(memory, "reserved", None),
        used_bytes=getattr(memory, "used", None),
        free_bytes=getattr(memory, "free", None),
        processes=_processes(handle),
        mig=_mig(handle),
        uncorrectable_ecc=_told(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        remapped_rows=rows and rows[1],
        remap_pending=rows and rows[2] > 0,
        remap_failed=rows and rows[3] > 0,
        source="NVML",
    )


def _processes(handle: object) -> tuple[GpuProcess, ...] | None:
    found = _told(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if found is None:
        return None
    listed = sorted(found, key=lambda process: int(process.pid))[:MAX_PROCESSES]
    return tuple(GpuProcess(pid=p.pid, used_bytes=p.usedGpuMemory) for p in listed)


def _mig(handle: object) -> bool | None:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    except pynvml.NVMLError as error:
        # a GPU that cannot be divided is not
        return False if getattr(error, "value", None) == pynvml.NVML_ERROR_NOT_SUPPORTED else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.isprintable() and value else None


class XidWatch:
    """Collects XID errors while it runs, in a thread of its own.

    NVML tells them as events only: what happened before is not told.
    """

    def __init__(self, indices: Collection[int] = ()) -> None:
        self._indices = frozenset(indices)
        self._seen: dict[int, tuple[int, ...]] = {}
        self._notes: tuple[str, ...] = ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="xid")

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End, once the wait that is under way is over; a driver that hangs is left behind after so long."""
        self._stop.set()
        self._thread.join(seconds)

    def xids(self, index: int) -> tuple[int, ...]:
        """The errors that a GPU has had so far, in order."""
        return self._seen.get(index, ())

    @property
    def notes(self) -> tuple[str, ...]:
        """Why there may be more than was seen."""
        return self._notes

    def _run(self) -> None:
        try:
            with _driver():
                self._watch()
        except _NoDriver:
            return  # whoever reads the GPUs says so
        except pynvml.NVMLError:
            self._notes = (NO_EVENTS,)

    def _watch(self) -> None:
        events = pynvml.nvmlEventSetCreate()
        try:
            count = min(_told(pynvml.nvmlDeviceGetCount) or 0, MAX_GPUS)
            for index in (i for i in self._indices or range(count) if i < count):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                pynvml.nvmlDeviceRegisterEvents(
                    handle, pynvml.nvmlEventTypeXidCriticalError, events
                )
            while True:
                self._wait(events)
                if self._stop.is_set():
                    return
        finally:
            _told(pynvml.nvmlEventSetFree, events)

    def _wait(self, events: object) -> None:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, WAIT_MILLISECONDS)
        except pynvml.NVMLError as error:
            if getattr(error, "value", None) == pynvml.NVML_ERROR_TIMEOUT:
                return
            raise
        index = _told(pynvml.nvmlDeviceGetIndex, event.device)
        if index is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        self._seen[index] = (*self.xids(index), int(event.eventData))[:MAX_XIDS]

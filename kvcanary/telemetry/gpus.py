"""The GPUs that a target names, whoever tells of them: the driver here, or a DCGM exporter."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from kvcanary.deployment.facts import Facts, Gpu
from kvcanary.deployment.target import GpuReader, GpuSource, PrometheusServer
from kvcanary.engines.exposition import Exposition, Malformed, parse
from kvcanary.probing.client import Client
from kvcanary.probing.outcome import Reason
from kvcanary.telemetry import dcgm
from kvcanary.telemetry.nvml import GpusSeen, XidWatch, read_gpus
from kvcanary.telemetry.prometheus import STALE_SECONDS, Prometheus
from kvcanary.telemetry.threads import in_thread

DRIVER_SECONDS = 10.0
"""Longest wait for the driver."""
STOP_SECONDS = 2.0
NO_DCGM = "GPUs are unknown: DCGM needs an exporter's URL or a Prometheus server."
NO_SELECTOR = "GPUs are unknown: DCGM through Prometheus needs a selector, or whose GPUs they are is not known."
HANGS = "GPUs are unknown: the NVIDIA driver of this machine does not answer."


class GpuWatch:
    """Reads the GPUs that somebody named, and collects XID errors while its ``async with`` block lasts.

    Nothing is read that was not named: the machine that kvcanary runs on may have GPUs of its own.
    """

    def __init__(
        self,
        client: Client,
        sources: Sequence[GpuSource],
        prometheus: PrometheusServer | None = None,
    ) -> None:
        self._client, self._sources = client, tuple(sources)
        self._prometheus = None if prometheus is None else Prometheus(prometheus)
        self._host = socket.gethostname()
        mine = [source for source in self._sources if source.reader is GpuReader.NVML]
        self._xids = XidWatch(_indices(mine)) if mine else None

    async def __aenter__(self) -> Self:
        if self._xids:
            self._xids.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def read(self) -> GpusSeen:
        """All of them now, with the XID errors so far."""
        seen = await asyncio.gather(*(self._read(source) for source in self._sources))
        notes = dict.fromkeys(note for one in seen for note in one.notes)
        return GpusSeen(tuple(gpu for one in seen for gpu in one.gpus), tuple(notes))

    async def added_to(self, facts: Facts) -> Facts:
        """The facts with the GPUs as they are now."""
        seen = await self.read()
        return facts.model_copy(update={"gpus": seen.gpus, "notes": (*facts.notes, *seen.notes)})

    async def _stop(self) -> None:
        watch = self._xids
        if watch is not None:
            with suppress(TimeoutError):
                await in_thread(lambda: watch.stop(STOP_SECONDS), 2 * STOP_SECONDS)

    async def _read(self, source: GpuSource) -> GpusSeen:
        if source.reader is GpuReader.NVML:
            seen = await self._from_driver(source)
        else:
            seen = await self._from_dcgm(source)
        return GpusSeen(
            tuple(gpu.model_copy(update={"worker": source.worker}) for gpu in seen.gpus), seen.notes
        )

    async def _from_driver(self, source: GpuSource) -> GpusSeen:
        try:
            seen = await in_thread(lambda: read_gpus(self._host, source.indices), DRIVER_SECONDS)
        except TimeoutError:
            return GpusSeen(notes=(HANGS,))
        watch = self._xids
        if watch is None or not seen.gpus:
            return seen
        gpus = (gpu.model_copy(update={"xids": watch.xids(gpu.index)}) for gpu in seen.gpus)
        return GpusSeen(tuple(gpus), (*seen.notes, *watch.notes))

    async def _from_dcgm(self, source: GpuSource) -> GpusSeen:
        if source.url is not None:
            return await self._from_exporter(source, source.url)
        if self._prometheus is None:
            return GpusSeen(notes=(NO_DCGM,))
        if not source.selector:
            return GpusSeen(notes=(NO_SELECTOR,))
        return await self._from_prometheus(source, self._prometheus)

    async def _from_exporter(self, source: GpuSource, url: str) -> GpusSeen:
        reply = await self._client.get_text(url, with_key=False)
        page = parse(reply.text, only=dcgm.WANTED) if reply.text is not None else None
        if page is None or isinstance(page, Malformed):
            why = reply.reason or "no text of metrics"
            return GpusSeen(notes=(f"GPUs are unknown: DCGM exporter {url} gave none ({why}).",))
        wanted = tuple(
            sample
            for sample in page.samples
            if all(sample.label(name) == value for name, value in source.selector)
        )
        host = urlsplit(url).hostname or url
        return _chosen(source, dcgm.gpus_in(Exposition(wanted), host, f"DCGM, {url}"), url)

    async def _from_prometheus(self, source: GpuSource, server: Prometheus) -> GpusSeen:
        page = await server.latest(dcgm.WANTED, source.selector)
        if isinstance(page, Reason):
            return GpusSeen(notes=(f"GPUs are unknown: Prometheus did not tell ({page}).",))
        ages = {
            dcgm.place_of(labels, "?"): age
            for labels, age in await server.ages(dcgm.AGED, source.selector)
        }
        gpus = dcgm.gpus_in(page, "?", "DCGM, Prometheus")
        fresh = [
            gpu
            for gpu in gpus
            if 0 <= ages.get((gpu.host, gpu.index), STALE_SECONDS + 1) <= STALE_SECONDS
        ]
        seen = _chosen(source, fresh, "Prometheus")
        old = len(gpus) - len(fresh)
        note = f"{old} GPUs are unknown: Prometheus last scraped them more than {STALE_SECONDS:.0f} s ago."
        return GpusSeen(seen.gpus, (note,)) if old else seen


def _chosen(source: GpuSource, gpus: Sequence[Gpu], where: str) -> GpusSeen:
    chosen = tuple(gpu for gpu in gpus if not source.indices or gpu.index in source.indices)
    if chosen:
        return GpusSeen(chosen)
    return GpusSeen(
        notes=(f"GPUs are unknown: {where} has no DCGM metrics of the GPUs that were named.",)
    )


def _indices(sources: Sequence[GpuSource]) -> frozenset[int]:
    """Of all sources together; empty, which is all, where one names none."""
    if any(not source.indices for source in sources):
        return frozenset()
    return frozenset(index for source in sources for index in source.indices)

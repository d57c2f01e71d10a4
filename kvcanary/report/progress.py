"""Progress on standard error while a run goes: bars on a terminal, a line a phase elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kvcanary.probing.events import Listener, Silence
from kvcanary.record.exchange import DECOYS, Exchange


@contextmanager
def progress(*, quiet: bool) -> Iterator[Listener]:
    """A listener that shows progress, or none."""
    console = Console(stderr=True)
    if quiet:
        yield Silence()
    elif not console.is_terminal:
        yield _Lines(console)
    else:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        ) as bars:
            yield _Bars(bars)


@contextmanager
def counter(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Counts what was done, each with a note: a bar on a terminal, a line elsewhere, or nothing."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _note: None
    elif not console.is_terminal:
        began, done = time.monotonic(), count(1)

        def line(note: str) -> None:
            seconds = time.monotonic() - began
            text = f"[{seconds:6.1f} s] {next(done)} of {total} {what}: {note}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)

        yield line
    else:
        with Progress(
            TextColumn(what),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        ) as bars:
            task = bars.add_task("", total=total)
            yield lambda note: bars.update(task, advance=1, description=note)


@contextmanager
def bytes_read(total: int | None, *, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Counts bytes of text, each time with the file's name: a bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _name, _count: None
    elif not console.is_terminal:
        yield _ByteLines(console, total).advance
    else:
        with Progress(
            TextColumn("scan"),
            BarColumn(bar_width=30),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        ) as bars:
            task = bars.add_task("", total=total)
            yield lambda name, count: bars.update(task, advance=count, description=name)


class _ByteLines:
    """A line every ten seconds is enough where lines stay."""

    def __init__(self, console: Console, total: int | None) -> None:
        self._console = console
        self._of = "" if total is None else f" of {total:,}"
        self._began = self._told = time.monotonic()
        self._bytes = 0

    def advance(self, name: str, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        if now - self._told >= 10:
            self._told = now
            text = f"[{now - self._began:6.1f} s] {self._bytes:,}{self._of} bytes searched: {name}"
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._current: TaskID | None = None

    def phase(self, text: str, requests: int, tokens: int) -> None:
        note = f"{tokens:,} tokens" if tokens else ""
        self._current = self._bars.add_task(f"{text:<16}", total=requests, note=note)

    def note(self, text: str) -> None:
        if self._current is not None:
            self._bars.update(self._current, note=text)

    def exchanged(self, exchange: Exchange) -> None:
        if self._current is None or exchange.purpose in DECOYS:
            return
        self._bars.advance(self._current)
        if exchange.foreign:
            self._bars.update(self._current, note="[bold red]foreign text[/]")


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def phase(self, text: str, requests: int, tokens: int) -> None:
        size = f", {tokens:,} tokens" if tokens else ""
        self.note(f"{text}: {requests} requests{size}")

    def note(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"[{seconds:6.1f} s] {text}", highlight=False, markup=False)

    def exchanged(self, exchange: Exchange) -> None:
        """One line a phase is enough where lines stay."""

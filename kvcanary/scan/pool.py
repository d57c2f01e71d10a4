"""Ranges on several cores, told in their order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import reduce
from itertools import islice

from kvcanary.scan.ranges import Done, Range, Task, steps
from kvcanary.scan.search import Searcher
from kvcanary.scan.tally import Tally

_AHEAD = 2
"""Ranges that wait for each process."""


class _Worker:
    """What a process of the pool works with."""

    task: Task
    searcher: Searcher


def in_order(task: Task, parts: Iterable[Range], jobs: int) -> Iterator[Done]:
    """Each range whole, in the order of ``parts``, at most ``jobs`` at a time."""
    executor = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(task,),
    )
    try:
        rest = iter(parts)
        waiting: deque[Future[Done]] = deque(
            executor.submit(_do, part) for part in islice(rest, _AHEAD * jobs)
        )
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(executor.submit(_do, part) for part in islice(rest, 1))
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _begin(task: Task) -> None:
    """Ctrl-C is for the one that asked; when that one is gone, so are we."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Worker.task = task
    _Worker.searcher = task.searcher()
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - only a process of the pool runs this

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _do(part: Range) -> Done:
    told = list(steps(_Worker.task, _Worker.searcher, part))
    tally = reduce(lambda sum_, done: sum_ + done.tally, told, Tally())
    return replace(told[-1], tally=tally)

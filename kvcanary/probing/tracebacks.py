"""What a traceback, and a library's log, may show of a request under way: where, and nothing that was said.

A fault of our own, or a cancellation, may pass through frames whose locals hold the key, request
headers or a server's text. ``pytest --showlocals``, rich and error trackers print locals; the HTTP
libraries log what is sent and what comes back.
"""

import logging
import traceback
from collections.abc import Iterator
from contextvars import ContextVar, Token
from types import TracebackType

_LIBRARIES = ("httpx", "httpcore", "h11", "anyio")
_LOGGERS = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "proxy", "socks")))

_silent: ContextVar[bool] = ContextVar("kvcanary_silent", default=False)


def _not_ours(_record: logging.LogRecord) -> bool:
    return not _silent.get()


for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_not_ours)


class Unseen:
    """Within it the HTTP libraries log nothing; what is raised out of it leaves its frames empty behind.

    The libraries' frames go, ours keep their place and lose their locals. No generator-based context
    manager: contextlib puts the old traceback back.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: Token[bool] = _silent.set(True)

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        _silent.reset(self._before)
        for part in causes_of(error):
            part.__traceback__ = _emptied(part.__traceback__)


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """`error`, what it was raised from, and the members of groups among them."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from causes_of(member)
        error = error.__cause__ or error.__context__


def _emptied(trace: TracebackType | None) -> TracebackType | None:
    traceback.clear_frames(trace)  # those that still run, the caller's, keep what they have
    frames = []
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _LIBRARIES:
            frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept

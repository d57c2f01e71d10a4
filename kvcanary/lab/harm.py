"""What really happened to each exchange: which faults struck it, and how much it read that was not its own.

Part of the ground truth: only tests, benchmarks and the selftest's scorer may read it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ExchangeTruth:
    """One exchange.

    ``request``: its ``X-Request-Id``. ``prompt_tokens``: None when no worker saw it.
    ``struck``: faults that went off while it was served. ``reached``: faults that went off for
    another request and changed what this one read or said. ``wrong_tokens``: how many slots of its
    prompt held something else than its own text, at the worst step at which decode looked.
    ``looked``: whether decode ever attended over them.
    """

    request: str
    prompt_tokens: int | None
    struck: tuple[str, ...]
    reached: tuple[str, ...]
    wrong_tokens: int
    looked: bool

    def hit_by(self, fault: str) -> bool:
        """Whether the fault of that key had a part in what this exchange got."""
        return fault in self.struck or fault in self.reached

    @property
    def sound(self) -> bool:
        """No fault had a part in it, and it read its own text only."""
        return not (self.struck or self.reached or self.wrong_tokens)


@dataclass(slots=True)
class _Account:
    prompt_tokens: int | None = None
    struck: dict[str, None] = field(default_factory=dict)
    reached: dict[str, None] = field(default_factory=dict)
    wrong_tokens: int = 0
    looked: bool = False


class Ledger:
    """One account for each exchange, in the order in which they came."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def _of(self, request: str) -> _Account:
        return self._accounts.setdefault(request, _Account())

    def seen(self, request: str, prompt_tokens: int) -> None:
        """A worker got the request."""
        self._of(request).prompt_tokens = prompt_tokens

    def struck(self, request: str, fault: str) -> None:
        """A fault went off while this request was served."""
        self._of(request).struck[fault] = None

    def reached(self, request: str, fault: str) -> None:
        """A fault that went off for another request changed something for this one."""
        self._of(request).reached[fault] = None

    def looked(self, request: str, wrong_tokens: int) -> None:
        """Decode attended over the prompt's slots, of which so many did not hold its text."""
        account = self._of(request)
        account.looked = True
        account.wrong_tokens = max(account.wrong_tokens, wrong_tokens)

    def exchange(self, request: str) -> ExchangeTruth | None:
        """What happened to the exchange of that name; None: it is not known."""
        account = self._accounts.get(request)
        return None if account is None else _frozen(request, account)

    def __iter__(self) -> Iterator[ExchangeTruth]:
        """All exchanges, oldest first."""
        return iter([_frozen(name, account) for name, account in self._accounts.items()])


def _frozen(request: str, account: _Account) -> ExchangeTruth:
    return ExchangeTruth(
        request,
        account.prompt_tokens,
        tuple(account.struck),
        tuple(account.reached),
        account.wrong_tokens,
        account.looked,
    )


def write_truth(path: Path, exchanges: Iterable[ExchangeTruth]) -> None:
    """One JSON object a line, whole or not at all. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(exchange)) + "\n" for exchange in exchanges)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_truth(path: Path) -> tuple[ExchangeTruth, ...]:
    """What `write_truth` wrote. Raises OSError, ValueError, TypeError and KeyError."""
    return tuple(_read(line) for line in path.read_text("utf-8").splitlines())


def _read(line: str) -> ExchangeTruth:
    fields = json.loads(line)
    fields["struck"], fields["reached"] = tuple(fields["struck"]), tuple(fields["reached"])
    return ExchangeTruth(**fields)

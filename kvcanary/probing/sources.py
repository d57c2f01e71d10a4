"""Which file and line each stratum comes from, for reports that point there."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from kvcanary.data import data_path
from kvcanary.probing.grammar import Probe, file_of
from kvcanary.record.source import Source

_GROUP = re.compile(r"\bgroup:\s*[\"']?([a-z0-9-]+)")


def sources(suite: str, probes: Sequence[Probe], references: Sequence[str]) -> tuple[Source, ...]:
    """The suite's file, and each probe's with the lines of its groups, by what each was named by."""
    of_probes = map(_of_probe, probes, references)
    whole = Source(path=_shown(file_of("suites", "suite", suite)))
    return (whole, *chain.from_iterable(of_probes))


def _of_probe(probe: Probe, reference: str) -> Iterator[Source]:
    file = file_of("probes", "probe", reference)
    path = _shown(file)
    yield Source(path=path, probe=probe.id)
    seen: set[str] = set()
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        for group in _GROUP.findall(line):
            if group not in seen:
                seen.add(group)
                yield Source(path=path, line=number, probe=probe.id, group=f"{probe.id}/{group}")


def _shown(file: Path) -> str:
    """As the repository that holds it names it; never a folder of the machine."""
    for folder in ("probes", "suites"):
        if file.parent == data_path(folder):
            return f"{folder}/{file.name}"
    whole = file.resolve()
    root = next((p for p in whole.parents if (p / ".git").exists()), Path.cwd())
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else whole.name

"""The formats of a report: the one list that ``-o``, ``--report`` and the documentation read.

A format is a module of this package, imported when it is asked for: ``render(record) -> str``, and where it is
not just written to a file, ``deliver(record, where)``.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvcanary.errors import UsageError

if TYPE_CHECKING:
    from kvcanary.record.run import RunRecord


class Place(StrEnum):
    """What a format is written to, as ``--report FORMAT=...`` names it."""

    FILE = "FILE"
    URL = "URL"
    ITS_OWN = ""
    """The format knows it."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``about``: what it is for, in a few words; ``suffix``: of its file's name."""

    name: str
    suffix: str
    about: str
    place: Place = Place.FILE
    own_way: bool = False
    """Its module brings it there itself."""

    @property
    def usage(self) -> str:
        """As it is given to ``--report``."""
        return f"{self.name}={self.place.value}" if self.place.value else self.name

    @property
    def deliver(self) -> "Callable[[RunRecord, str], None]":
        """Bring it to its place, where the format does so itself. Raises KvcanaryError."""
        deliver: Callable[[RunRecord, str], None] = import_module(
            f"kvcanary.report.{self.name}"
        ).deliver
        return deliver

    @property
    def render(self) -> "Callable[[RunRecord], str]":
        """From a record to text."""
        render: Callable[[RunRecord], str] = import_module(f"kvcanary.report.{self.name}").render
        return render


FORMATS = MappingProxyType(
    {
        format_.name: format_
        for format_ in (
            Format("html", ".html", "one page with pictures, for people: no network, no scripts"),
            Format("json", ".json", "the whole record as one JSON document"),
            Format("junit", ".xml", "JUnit: each claim is a test case"),
            Format("sarif", ".sarif", "SARIF 2.1.0, for code scanning"),
            Format("markdown", ".md", "for a comment on a change, or a wiki"),
            Format(
                "github",
                "",
                "annotations on standard error, and the step's summary on GitHub",
                Place.ITS_OWN,
                own_way=True,
            ),
            Format(
                "textfile", ".prom", "metrics for node_exporter's textfile collector", own_way=True
            ),
            Format(
                "pushgateway", "", "metrics to a Prometheus pushgateway", Place.URL, own_way=True
            ),
            Format("nagios", ".txt", "one line with perfdata, as Nagios and Icinga read it"),
            Format("termination", ".txt", "one line for Kubernetes' termination log"),
        )
    }
)
"""Every format by its name."""
PRINTED = tuple(format_.name for format_ in FORMATS.values() if format_.place is not Place.URL)
"""Formats that ``-o`` prints."""


def format_named(name: str) -> Format:
    """The format. Raises UsageError that names the nearest one."""
    if name not in FORMATS:
        nearest = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0.0)[0]
        raise UsageError(
            f"There is no format `{name[:60]}`; did you mean `{nearest}`? There are: {', '.join(FORMATS)}."
        )
    return FORMATS[name]

"""A report on its way: from a record to the file or the place that was named."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kvcanary.errors import UsageError
from kvcanary.record.run import RunRecord
from kvcanary.report.files import write_atomically
from kvcanary.report.formats import Format, Place, format_named

GATEWAY_CREDENTIALS = "KVCANARY_PUSHGATEWAY_AUTH"
"""Environment variable with ``USER:PASSWORD`` of a pushgateway."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was asked for. ``where``: its file or URL; empty where the format knows its place."""

    format: Format
    where: str

    @property
    def file(self) -> Path | None:
        """The file that is written; None where it goes elsewhere."""
        return Path(self.where) if self.format.place is Place.FILE else None


def asked_for(text: str) -> Report:
    """``FORMAT=WHERE`` as a report. Raises UsageError, before anything is sent, for what cannot be."""
    name, equals, where = text.partition("=")
    format_ = format_named(name)
    if bool(equals and where) != bool(format_.place.value) or bool(equals) != bool(where):
        raise UsageError(f"`{text[:200]}`: this report is asked for as {format_.usage}.")
    if format_.place is Place.URL:
        _require_address(where)
    report = Report(format_, where)
    if report.file and (not report.file.parent.is_dir() or report.file.is_dir()):
        raise UsageError(f"`{where}` cannot be a file: is its folder there?")
    return report


def require_different(reports: tuple[Report, ...]) -> None:
    """Raises UsageError where two reports would be written to one place."""
    seen: dict[str, Report] = {}
    for report in reports:
        place = (
            str(report.file.resolve()) if report.file else f"{report.format.name} {report.where}"
        )
        if place in seen:
            raise UsageError(
                f"The reports `{seen[place].format.name}` and `{report.format.name}` would both be written to "
                f"{report.where or 'one place'}: give each a place of its own."
            )
        seen[place] = report


def deliver(report: Report, record: RunRecord) -> None:
    """Make it and bring it there. Raises KvcanaryError when that cannot be done."""
    if report.format.own_way:
        report.format.deliver(record, report.where)
    else:
        write_atomically(Path(report.where), report.format.render(record))


def _require_address(url: str) -> None:
    """Raises UsageError for what is no address of a gateway."""
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        raise UsageError("--report: the URL cannot be read.") from None
    if "@" in parts.netloc:
        raise UsageError(
            "--report: a URL with a user name or a password shows it to everybody who lists "
            f"processes. Put USER:PASSWORD into {GATEWAY_CREDENTIALS}."
        )
    plain = parts.hostname and not parts.query and not parts.fragment and port_is_one
    if parts.scheme not in ("http", "https") or not plain:
        raise UsageError("--report: a URL looks like http(s)://HOST[:PORT][/PATH].")

"""Metrics as a file for node_exporter's textfile collector."""

from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kvcanary.record.run import RunRecord
from kvcanary.report.files import write_atomically
from kvcanary.report.metrics import LAST_SUCCESS, identity, registry

MAX_BYTES = 1_000_000


def render(record: RunRecord) -> str:
    """In the text format, without timestamps: the collector wants none."""
    return generate_latest(registry(record)).decode()


def deliver(record: RunRecord, where: str) -> None:
    """Write the file, readable for everybody. When a run last passed is taken over from the file that it
    replaces. Raises ConfigError when that cannot be done."""
    path = Path(where)
    text = generate_latest(registry(record, _last_success(path, identity(record)))).decode()
    write_atomically(path, text, for_everybody=True)


def _last_success(path: Path, own: dict[str, str]) -> float | None:
    """As the file says it for this deployment and suite; None where it does not."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        families = list(text_string_to_metric_families(path.read_text("utf-8")))
    except (OSError, ValueError):  # somebody else's file, or none
        return None
    samples = (s for f in families if f.name == LAST_SUCCESS for s in f.samples)
    return next((s.value for s in samples if own.items() <= s.labels.items()), None)

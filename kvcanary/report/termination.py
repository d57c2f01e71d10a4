"""One line for Kubernetes' termination log: `kubectl describe pod` and whoever watches the pod show it.

Kubernetes keeps 4,096 bytes of it (``terminationMessagePath`` in the reference of containers).
"""

from kvcanary.record.run import RunRecord
from kvcanary.report.printable import printable
from kvcanary.verdict.claims import Status

MAX_BYTES = 4_096
_CUT = " ..."


def render(record: RunRecord) -> str:
    """Verdict, exit code, headline; claims that do not hold; findings by rule, the worst first."""
    verdict = record.verdict
    if verdict is None:
        return _line(f"unfinished: {record.stopped or 'the run was cut off'}")
    parts = [f"{verdict.status} (exit code {verdict.exit_code:d}): {verdict.headline}"]
    for status in (Status.FAIL, Status.INCONCLUSIVE):
        named = [
            c.name.value
            for c in verdict.claims
            if c.status is status and (c.required or status is Status.FAIL)
        ]
        parts += [f"{status}: {', '.join(named)}"] if named else []
    parts += [f"{f.severity} [{f.rule}] {f.title}" for f in record.findings if not f.waived]
    return _line("; ".join(parts))


def _line(text: str) -> str:
    """What ends a line or steers a terminal is replaced; never more bytes than are kept."""
    said = " ".join(printable(text, " ").split())
    raw = f"kvcanary {said}".encode("utf-8", "replace")
    if len(raw) > MAX_BYTES - 1:
        raw = raw[: MAX_BYTES - 1 - len(_CUT)] + _CUT.encode()
    return raw.decode("utf-8", "ignore") + "\n"

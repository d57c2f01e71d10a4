"""One line for Nagios and what understands its plugins: ``STATE - text | perfdata``.

The states follow Monitoring Plugins' guidelines; what is inconclusive is a WARNING, since it was looked at and
did not show what it has to, and what could not run is UNKNOWN.
"""

from kvcanary.record.run import RunRecord
from kvcanary.report.figures import figures
from kvcanary.report.printable import printable
from kvcanary.verdict.claims import ExitCode

STATES = {
    ExitCode.PASS: "OK",
    ExitCode.INCONCLUSIVE: "WARNING",
    ExitCode.VIOLATION: "CRITICAL",
    ExitCode.COULD_NOT_RUN: "UNKNOWN",
    ExitCode.INTERRUPTED: "UNKNOWN",
}
CODES = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
MAX_TEXT = 600
"""Characters of the text: the whole line has to stay below 1,024 for old agents."""


def render(record: RunRecord) -> str:
    """The line, with its end."""
    verdict = record.verdict
    if verdict is None:
        return line(
            ExitCode.INCONCLUSIVE, f"the run did not finish: {record.stopped or 'it was cut off'}"
        )
    sums = figures(record)
    told: dict[str, str | None] = {
        "claims_failed": f"{sums.failed}",
        "claims_inconclusive": f"{sums.inconclusive}",
        "findings": f"{len(record.findings)}",
        "leaks": f"{sums.leaks};;0",
        "requests": f"{sums.requests}",
        "prompt_tokens": f"{sums.prompt_tokens}",
        "duration": None if sums.seconds is None else f"{sums.seconds:.1f}s",
        "bad_rate_bound": None if sums.bound is None else f"{sums.bound:.4f};;;0;1",
    }
    perfdata = " ".join(f"{name}={value}" for name, value in told.items() if value is not None)
    return line(verdict.exit_code, verdict.headline, perfdata)


def line(code: ExitCode, text: str, perfdata: str = "") -> str:
    """Any outcome as a line; ``|`` and what ends a line or steers a terminal is replaced."""
    said = printable(text[: 2 * MAX_TEXT], " ", without="|")
    said = " ".join(said.split())[:MAX_TEXT] or "nothing was said"
    return f"KVCANARY {STATES[code]} - {said}{f' | {perfdata}' if perfdata else ''}\n"


def code(own: int) -> int:
    """Nagios's exit code for one of kvcanary's."""
    return CODES[next((state for known, state in STATES.items() if known == own), "UNKNOWN")]

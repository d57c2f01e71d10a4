"""Where the time of the tests goes: `python -m pytest -p tests.spent ...` ends with a table.

CPU is user and system time, in seconds, of the test's own process and of every process that it
waited for: `os.times` of the process, before and after each phase of a test. What a fixture of a
module started counts where it ends. Wall time is what pytest calls duration. Works under xdist: each
figure travels to the controller with the report of its phase.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

SHOWN = 40
_OWN = "kvcanary_cpu_s"


@dataclass
class Spent:
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def add(self, cpu_s: float, wall_s: float) -> None:
        self.cpu_s += cpu_s
        self.wall_s += wall_s


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class _Spending:
    def __init__(self) -> None:
        self.before_s = _cpu_s()
        self.tests: dict[str, Spent] = defaultdict(Spent)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = _cpu_s()
        setattr(report, _OWN, now_s - self.before_s)
        self.before_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid].add(getattr(report, _OWN, 0.0), report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: dict[str, Spent] = defaultdict(Spent)
        for name, spent in self.tests.items():
            files[name.partition("::")[0]].add(spent.cpu_s, spent.wall_s)
        for title, rows in (("files", files), ("tests", self.tests)):
            terminalreporter.section(f"{title} that took the most CPU")
            terminalreporter.line(f"{'CPU s':>8} {'wall s':>8}")
            for name, spent in sorted(rows.items(), key=lambda row: -row[1].cpu_s)[:SHOWN]:
                terminalreporter.line(f"{spent.cpu_s:8.1f} {spent.wall_s:8.1f}  {name}")
        total = sum(spent.cpu_s for spent in files.values())
        terminalreporter.line(f"{total:8.1f}  all files")
        if path := os.environ.get("SPENT_JSON"):
            Path(path).write_text(
                json.dumps({n: [s.cpu_s, s.wall_s] for n, s in self.tests.items()})
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Spending(), "kvcanary-spent")

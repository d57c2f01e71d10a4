"""The pytest plugin: ``NAME.kvcanary.yaml`` is a suite whose probes and claims are test items.

Loaded by every pytest that runs where kvcanary is installed, so it imports next to nothing until there is a
file to collect or the fixture is asked for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from kvcanary.pytest_plugin.session import Session
    from kvcanary.record.run import RunRecord

SUFFIX = ".kvcanary.yaml"
ITEMS_SHOW = ("kvcanary_headline", "kvcanary_record")
"""Properties of each report that the terminal's summary, and JUnit files, are told."""
_SESSION: pytest.StashKey["Session"] = pytest.StashKey()
_WORKER_INPUT = "kvcanary_session"


class KvcanaryRun(Protocol):
    """The fixture ``kvcanary_run``."""

    def __call__(
        self, target: str | None = None, *, suite: str = "check", options: Sequence[str] = ()
    ) -> "RunRecord":
        """Run a suite and return its judged record, whatever the verdict.

        Args:
            target: URL, deployment file or ``lab:NAME``; None: what ``--kvcanary-target`` says.
            suite: id of a shipped suite, or the path of one's own.
            options: words of `kvcanary check`, such as ``["--tokens", "4000000"]``; they come after those of
                ``--kvcanary-args``.

        Raises KvcanaryError when nothing could be run.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvcanary", "kvcanary: do tenants' KV pages stay apart?")
    group.addoption(
        "--kvcanary-target",
        metavar="URL|FILE|lab:NAME",
        help="what *.kvcanary.yaml files are run against: as in `kvcanary check`. The API key comes from "
        "KVCANARY_API_KEY.",
    )
    group.addoption(
        "--kvcanary-args",
        metavar="OPTIONS",
        help="more options of `kvcanary check`, in one word: '--tokens 4000000 --report junit=canary.xml'.",
    )
    group.addoption(
        "--kvcanary-inconclusive",
        choices=("error", "xfail"),
        help="what becomes of something that the suite requires and that could not be measured: an error "
        "(the default), or an expected failure, which lets the session pass.",
    )
    parser.addini("kvcanary_target", "default of --kvcanary-target")
    parser.addini("kvcanary_args", "default of --kvcanary-args", type="args", default=[])
    parser.addini("kvcanary_inconclusive", "default of --kvcanary-inconclusive", default="error")


def _session(config: pytest.Config) -> "Session":
    """The session's runs, made when first asked for."""
    if _SESSION not in config.stash:
        from kvcanary.pytest_plugin.session import Session

        given = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
        config.stash[_SESSION] = Session.of(config, given)
    return config.stash[_SESSION]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: the workers share one session, so that a suite is run once."""
    node.workerinput[_WORKER_INPUT] = _session(node.config).id


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SESSION in config.stash and not hasattr(config, "workerinput"):
        config.stash[_SESSION].end()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not file_path.name.endswith(SUFFIX):
        return None
    from kvcanary.pytest_plugin.suite_file import SuiteFile

    collector: pytest.Collector = SuiteFile.from_parent(
        parent, path=file_path, runs=_session(parent.config)
    )
    return collector


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For each run: its headline, and where the record lies."""
    told: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            said = dict(getattr(report, "user_properties", ()))
            headline, record = (said.get(name) for name in ITEMS_SHOW)
            if headline and record:
                told[str(record)] = f"{report.nodeid.partition('::')[0]}: {headline}"
    if told:
        terminalreporter.section("kvcanary")
        for record, line in told.items():
            terminalreporter.write_line(line)
            terminalreporter.write_line(f"  record  {record}")


@pytest.fixture(scope="session")
def kvcanary_run(pytestconfig: pytest.Config) -> KvcanaryRun:
    """A function that runs a suite against a deployment and returns the judged record: see KvcanaryRun."""
    session = _session(pytestconfig)

    def kvcanary_run(
        target: str | None = None, *, suite: str = "check", options: Sequence[str] = ()
    ) -> "RunRecord":
        __tracebackhide__ = True
        return session.record_of_a_run(target, ("--suite", suite, *options))

    return kvcanary_run

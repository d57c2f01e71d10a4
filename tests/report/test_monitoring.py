"""The dashboard and the alerts, against promtool and a Prometheus that scraped a real run's metrics."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvcanary.data import data_path
from kvcanary.report import textfile
from tests import needs
from tests.cli.command import kvcanary
from tests.instrument.lab_runs import Setup, ran
from tests.report.scenes import failing, passing
from tests.telemetry.real_prometheus import Scraped, exporter, prometheus, query

ALERTS = data_path("reports") / "prometheus" / "alerts.yaml"
DASHBOARD = data_path("reports") / "grafana" / "kvcanary.json"
METRIC = re.compile(r"\bkvcanary_[a-z_]+")
TESTS = Path(__file__).with_name("alerts_test.yaml")


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    path = needs.program("promtool", "python3 tools/install_test_servers.py")
    return subprocess.run([path, *words], capture_output=True, text=True, check=False)


def unit_tests(rules: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The unit tests against these rules."""
    (folder / "rules.yaml").write_text(rules)
    (folder / "tests.yaml").write_text(TESTS.read_text().replace("RULES", "rules.yaml"))
    return promtool("test", "rules", str(folder / "tests.yaml"))


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    return [p for p in json.loads(DASHBOARD.read_text())["panels"] if p["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


# alerts


def test_promtool_accepts_the_rules() -> None:
    ended = promtool("check", "rules", str(ALERTS))
    assert ended.returncode == 0, ended.stderr
    assert f"{len(rules())} rules found" in ended.stdout


def test_alerts_fire_when_they_have_to(tmp_path: Path) -> None:
    ended = unit_tests(ALERTS.read_text(), tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('{severity="leak"} > 0', '{severity="leak"} > 2'),
        ('{severity="corruption"} > 0', '{severity="degraded"} > 0'),
        ("expr: kvcanary_claim{", "expr: 2 * kvcanary_claim{"),
        ("unless on (target, suite) kvcanary_claim", "and on (target, suite) kvcanary_claim"),
        ("for: 26h", "for: 1h"),
        ("> 2 * 86400", "> 3 * 86400"),
        ("> 7 * 86400", "> 1 * 86400"),
        ("for: 1h", "for: 12h"),
    ],
)
def test_a_rule_that_is_wrong_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    """The unit tests of the rules are worth something: each rule, spoilt, fails them."""
    text = ALERTS.read_text()
    assert text.count(right) == 1
    assert unit_tests(text.replace(right, wrong), tmp_path).returncode != 0


# the dashboard


def test_panels_are_whole() -> None:
    for panel in panels():
        assert panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert refs
        assert len(set(refs)) == len(refs), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_what_is_asked_for_is_exported_and_what_is_exported_is_shown() -> None:
    """Whoever renames a metric hears of it."""
    exported = set(re.findall(r"^# TYPE (\S+)", textfile.render(passing()), re.MULTILINE))
    shown = {name for text in queries() for name in METRIC.findall(text)}
    alerted = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    assert shown | alerted <= exported
    hidden = {
        "kvcanary_run_info",
        "kvcanary_verdict",
        "kvcanary_claim_required",
        "kvcanary_waived_findings",
    }
    assert exported - shown == hidden
    listed = set(METRIC.findall((data_path("docs") / "reports.md").read_text()))
    assert exported <= listed


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has the metrics of a run that passed, of one that did not, and of a lab's own."""
    other = failing().info.model_copy(update={"target": "http://other.example/v1"})
    with (
        exporter(textfile.render(passing())) as good,
        exporter(textfile.render(failing(info=other))) as bad,
        exporter(textfile.render(ran(Setup()).record)) as lab,
        prometheus(
            tmp_path_factory.mktemp("prometheus"),
            Scraped("good", good, {}),
            Scraped("bad", bad, {}),
            Scraped("lab", lab, {}),
        ) as url,
    ):
        yield url


def test_a_real_prometheus_answers_every_panel(scraped: str) -> None:
    for text in queries():
        chosen = text.replace("$target", ".*").replace("$suite", ".*")
        assert query(scraped, chosen), text


def test_a_real_prometheus_alerts_of_the_leak_alone(scraped: str) -> None:
    found = {
        (rule["alert"], series["metric"].get("target"))
        for rule in rules()
        for series in query(scraped, rule["expr"])
        if series["metric"].get("target") != "lab:healthy"
    }
    old = {"KvcanaryNotRun", "KvcanaryNoSuccess"}  # the records of the tests are from the past
    assert {f for f in found if f[0] not in old} == {
        ("KvcanaryLeak", "other.example"),
        ("KvcanaryCapacity", "other.example"),
    }
    for name in old:
        assert (name, "127.0.0.1:1") in found


# how a person gets them


@pytest.mark.parametrize(("word", "file"), [("dashboard", DASHBOARD), ("alerts", ALERTS)])
def test_they_are_printed(word: str, file: Path, tmp_path: Path) -> None:
    ended = kvcanary(tmp_path, "metrics", word)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == file.read_text()

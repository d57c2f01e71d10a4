"""What CI systems read: valid by their own schemas for every verdict, and hostile text stays text."""

import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kvcanary.errors import ConfigError
from kvcanary.record.run import RunRecord
from kvcanary.record.source import Source
from kvcanary.report import github, junit, markdown, nagios, sarif
from kvcanary.report.formats import FORMATS, PRINTED
from kvcanary.verdict.claims import ExitCode, Status
from tests.builders import finding
from tests.report.scenes import HOSTILE, VERDICTS, failing, hostile, inconclusive, passing

SCHEMAS = Path(__file__).parent / "schemas"
SOURCES = (
    Source(path="suites/own.yaml"),
    Source(path="probes/oversize.yaml", probe="oversize"),
    Source(path="probes/oversize.yaml", line=17, probe="oversize", group="edge"),
)
scenes = pytest.mark.parametrize("scene", VERDICTS)
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@cache
def run_of(scene: str) -> RunRecord:
    return VERDICTS[scene]()


def located(run: RunRecord) -> RunRecord:
    return run.model_copy(update={"info": run.info.model_copy(update={"sources": SOURCES})})


@scenes
@pytest.mark.parametrize("name", [n for n in PRINTED if n not in ("json", "html")])
def test_nothing_that_steers_a_terminal_or_reverses_text(name: str, scene: str) -> None:
    text = FORMATS[name].render(run_of(scene))
    assert not CONTROL.search(text), text
    text.encode("utf-8")


# JUnit


@cache
def junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


@scenes
def test_junit_is_valid_by_the_schema_that_pytest_is_held_to(scene: str) -> None:
    text = junit.render(run_of(scene))
    junit_schema().validate(text)
    cases = ET.fromstring(text).findall(".//testcase")
    assert cases
    assert len({(c.get("classname"), c.get("name")) for c in cases}) == len(cases)


@scenes
def test_junit_says_failure_error_and_skipped_for_what_they_mean(scene: str) -> None:
    run = run_of(scene)
    told = {
        c.get("name"): {k.tag for k in c} for c in ET.fromstring(junit.render(run)).iter("testcase")
    }
    if run.verdict is None:
        assert told == {"run": {"error"}}
        return
    for claim in run.verdict.claims:
        unknown = "error" if claim.required else "skipped"
        tag = {Status.FAIL: "failure", Status.INCONCLUSIVE: unknown}.get(claim.status, "system-out")
        assert told[claim.name.value] == {tag}


def test_what_is_no_pass_is_green_in_no_format() -> None:
    """Every claim that is required holds, and the run did not come to its end."""
    run = passing()
    assert run.verdict
    claims = tuple(
        c.model_copy(update={"status": Status.PASS, "required": True}) for c in run.verdict.claims
    )
    verdict = run.verdict.model_copy(
        update={"claims": claims, "status": Status.INCONCLUSIVE, "exit_code": ExitCode.INCONCLUSIVE}
    )
    run = run.model_copy(update={"verdict": verdict, "findings": (), "stopped": "no room"})
    assert ET.fromstring(junit.render(run)).findall(".//error")
    assert sarif_run(run)["results"]
    assert "::warning" in github.render(run)


# SARIF


@cache
def sarif_schema() -> Any:
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


def sarif_run(run: RunRecord) -> dict[str, Any]:
    document = json.loads(sarif.render(run))
    sarif_schema().validate(document)
    (one,) = document["runs"]
    assert isinstance(one, dict)
    return one


@scenes
def test_sarif_is_valid_and_complete(scene: str) -> None:
    told = sarif_run(run_of(scene))
    rules = [rule["id"] for rule in told["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    prints = set()
    for result in told["results"]:
        assert result["ruleId"] in rules
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert not uri.startswith(("/", ".."))
        assert "://" not in uri
        prints.add((result["ruleId"], *result["partialFingerprints"].values()))
    assert len(prints) == len(told["results"])
    assert bool(told["results"]) == (scene != "passing")


def test_sarif_points_at_the_line_of_the_stratum() -> None:
    told = sarif_run(located(failing()))
    places = {r["ruleId"]: r["locations"][0]["physicalLocation"] for r in told["results"]}
    leak = places["isolation/foreign-text"]
    assert leak["artifactLocation"]["uri"] == "probes/oversize.yaml"
    assert leak["region"]["startLine"] == 17
    pool = places["capacity/pool-below-context"]
    assert pool["artifactLocation"]["uri"] == "suites/own.yaml"


def test_sarif_knows_a_leak_as_a_matter_of_security() -> None:
    told = sarif_run(failing())
    rules = {rule["id"]: rule for rule in told["tool"]["driver"]["rules"]}
    leak = rules["isolation/foreign-text"]
    assert float(leak["properties"]["security-severity"]) > 9
    assert "external/cwe/cwe-226" in leak["properties"]["tags"]
    assert "What to do" in leak["help"]["markdown"]
    assert "security-severity" not in rules["capacity/pool-below-context"]["properties"]
    assert all(len(rule["properties"]["tags"]) <= 10 for rule in rules.values())


def test_sarif_fingerprints_stay_from_run_to_run() -> None:
    """Other workers, another run, another text: the same alert."""
    first, again = failing(), failing()
    found = tuple(
        f.model_copy(update={"title": "other", "workers": ("http://10.0.0.9:1",)})
        for f in again.findings
    )
    again = again.model_copy(update={"findings": found})
    prints = [
        [r["partialFingerprints"] for r in sarif_run(run)["results"]] for run in (first, again)
    ]
    assert prints[0] == prints[1]


def test_sarif_says_what_was_not_measured_and_what_is_waived() -> None:
    """An upload without results would close the alerts of the one before."""
    told = sarif_run(inconclusive())
    assert {r["ruleId"] for r in told["results"]} == {"claim/not-measured"}
    waived = failing().model_copy(update={"findings": (finding(waived="until 2027-01-01: known"),)})
    (result,) = sarif_run(waived)["results"]
    assert result["suppressions"][0]["justification"] == "until 2027-01-01: known"


def test_sarif_stays_within_what_github_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sarif.MAX_RESULTS == 5_000
    monkeypatch.setattr(sarif, "MAX_RESULTS", 50)
    many = failing().model_copy(update={"findings": (finding(),) * 60})
    assert len(sarif_run(many)["results"]) == 50


def test_sarif_messages_hold_no_links() -> None:
    for result in sarif_run(hostile())["results"]:
        assert not re.search(r"(?<!\\)\[", result["message"]["text"])


# GitHub


LINE = re.compile(
    r"::(error|warning|notice) file=([^,:\s]+),line=(\d+),title=([^,:\r\n]+)::([^\r\n]*)\n"
)


@scenes
def test_github_gets_whole_commands_and_no_others(scene: str) -> None:
    text = github.render(run_of(scene))
    assert "".join(m.group() for m in LINE.finditer(text)) == text
    assert bool(text) == (scene != "passing")


def test_github_points_at_the_line() -> None:
    first, *_ = LINE.finditer(github.render(located(failing())))
    assert first.groups()[:3] == ("error", "probes/oversize.yaml", "17")
    assert "hold text of other requests%0Arequest 10" in first.group(5)


def test_github_gets_ten_of_a_kind_and_the_number_of_the_others() -> None:
    many = failing().model_copy(update={"findings": (finding(),) * 25})
    errors = [m for m in LINE.finditer(github.render(many)) if m.group(1) == "error"]
    assert len(errors) == 10
    assert errors[-1].group(5).endswith("And 15 more: see the summary.")


def test_the_summary_is_appended_and_never_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    github.deliver(failing(), "")
    github.deliver(passing(), "")
    told = summary.read_text()
    assert [line for line in told.splitlines() if line.startswith("## ")] == [
        "## kvcanary: FAIL",
        "## kvcanary: PASS",
    ]
    assert capsys.readouterr().err == github.render(failing())
    with summary.open("a") as file:
        file.write("x" * 1_024 * 1_024)
    before = summary.stat().st_size
    with pytest.raises(ConfigError, match="no room left"):
        github.deliver(passing(), "")
    assert summary.stat().st_size == before


# Markdown


def rendered(text: str) -> str:
    """As a forge shows it: HTML in the text counts, as it would there."""
    return str(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def test_markdown_says_verdict_findings_claims_and_what_is_missing() -> None:
    html = rendered(markdown.render(failing()))
    assert html.startswith("<h2>kvcanary: FAIL</h2>")
    assert "<code>isolation/foreign-text</code>" in html
    assert html.count("<tr>") == 6
    assert "What to do: " in html
    assert "did not finish" in rendered(markdown.render(VERDICTS["cut off"]()))


def test_markdown_of_hostile_text_is_text() -> None:
    text = markdown.render(hostile())
    html = rendered(text)
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {
        "h2",
        "h3",
        "p",
        "strong",
        "code",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert html.count("<h2>") == 1
    assert html.count("<h3>") <= 3
    assert html.count("<tr>") == 6, "no text makes rows"
    assert "@everyone" not in re.sub("`[^`]*`", "", text)
    outside = re.sub("<code>.*?</code>", "", html)
    assert "https://" not in outside
    assert "#1" not in outside


@pytest.mark.parametrize("count", [1, 40, 400])
def test_markdown_fits_into_a_comment(count: int) -> None:
    long = finding(evidence=(HOSTILE * 20,) * 10)
    text = markdown.render(failing().model_copy(update={"findings": (long,) * count}))
    assert len(text) < 65_536
    shown = text.count("**F")
    assert shown == count or f"And {count - shown} more in the record." in text
    assert "### Claims" in text


# Nagios


@scenes
def test_nagios_gets_one_line_with_perfdata(scene: str) -> None:
    text = nagios.render(run_of(scene))
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert len(text.encode()) < 1_024 * 2
    state, _, perfdata = text.rstrip().partition(" | ")
    assert re.match(r"KVCANARY (OK|WARNING|CRITICAL|UNKNOWN) - .", state)
    assert "|" not in perfdata
    for one in perfdata.split():
        assert re.fullmatch(r"[a-z_]+=-?[0-9.]+s?(;[0-9.]*){0,4}", one), one


# any text at all

SPECIAL = st.text("`|<>[]()!*_\\#@:/%-+=~$&{}.,;'\" 12aw\n\r\t\x00\x1b\u202e\u2028", max_size=40)
anything = settings(max_examples=60, deadline=None)
ANY = st.one_of(SPECIAL, st.text(max_size=40), st.just(HOSTILE))


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


@anything
@given(ANY)
def test_no_text_becomes_markup(text: str) -> None:
    for told in (markdown.sentence(printable(text)), markdown.code(printable(text))):
        html = rendered(f"- {told} end\n")
        assert set(re.findall(r"<(\w+)", html)) <= {"ul", "li", "code"}, told
        assert html.count("<li>") == 1
        html = rendered(f"| a | b |\n| --- | --- |\n| {told} | last |\n")
        assert set(re.findall(r"<(\w+)", html)) <= {
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "code",
        }
        assert "<td>last</td>" in html
        assert html.count("<td>") == 2


@anything
@given(ANY)
def test_no_text_becomes_a_command_or_a_second_line(text: str) -> None:
    about = run_of("inconclusive")
    run = about.model_copy(update={"findings": (finding(title=text, rule=text, remedy=text),)})
    told = github.render(run)
    assert "".join(m.group() for m in LINE.finditer(told)) == told
    assert nagios.line(ExitCode.PASS, text).count("\n") == 1
    for result in sarif_run(run)["results"]:
        assert not CONTROL.search(result["message"]["text"])


@anything
@given(ANY)
def test_every_text_is_valid_xml(text: str) -> None:
    run = run_of("failing")
    assert run.verdict
    claims = tuple(c.model_copy(update={"text": text}) for c in run.verdict.claims)
    verdict = run.verdict.model_copy(update={"claims": claims})
    found = tuple(f.model_copy(update={"title": text}) for f in run.findings)
    ET.fromstring(junit.render(run.model_copy(update={"verdict": verdict, "findings": found})))

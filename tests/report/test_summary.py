"""The summary and the JUnit report: hostile text changes nothing of what they say."""

import io
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from kvcanary.deployment.facts import Role
from kvcanary.record.run import HighWater, RunRecord
from kvcanary.record.series import Series
from kvcanary.report import junit
from kvcanary.report.summary import print_summary
from kvcanary.verdict.claims import ClaimName
from kvcanary.verdict.judge import judge
from tests.builders import facts, finding, foreign, healthy, info, record, sound, worker

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m"
MARKUP = "[bold red]PASS[/bold red] [/] [link=http://evil]x[/link] \\["
OVERRIDE = "\u202edessap\u202c \u2066x\u2069 \u200f"
HOSTILE = [
    ESCAPES,
    MARKUP,
    OVERRIDE,
    "line\nbreak\rcarriage\ttab\x0b\x0c\x85\u2028",
    "x" * 1_000_000,
    "\x00",
]


def judged(run: RunRecord) -> RunRecord:
    found = judge(run, (ClaimName.OWNERSHIP, ClaimName.ISOLATION))
    return run.model_copy(update={"findings": found.findings, "verdict": found.verdict})


def failing(**fields: object) -> RunRecord:
    run = healthy(high_water=HighWater(tokens=97_000, how="measured"), **fields)
    changed = [
        e.model_copy(update={"foreign": (foreign(),)}) if e.number in (10, 11) else e
        for e in run.exchanges
    ]
    return judged(run.model_copy(update={"exchanges": tuple(changed)}))


def shown(run: RunRecord, width: int = 80, path: str | None = "/tmp/run.jsonl") -> str:
    out = io.StringIO()
    print_summary(Console(file=out, width=width, force_terminal=False), run, path)
    return out.getvalue()


def test_it_says_the_verdict_first_and_what_to_do_last() -> None:
    text = shown(failing())
    assert text.splitlines()[2].startswith(
        " FAIL   2 of 3 answers in `edge` hold text of other requests"
    )
    assert "what to do: Isolate the deployment now" in text
    assert text.splitlines()[-2:] == [
        "replay  kvcanary replay /tmp/run.jsonl F1",
        "record  /tmp/run.jsonl",
    ]
    assert "PASS" in shown(judged(healthy(high_water=HighWater(tokens=97_000, how="measured"))))


@pytest.mark.parametrize(
    "text", HOSTILE, ids=["escapes", "markup", "override", "controls", "1 MB", "nul"]
)
def test_hostile_names_and_notes_are_shown_as_plain_text(text: str) -> None:
    names = info(model=text, target=f"http://x/{text}")
    odd = worker(Role.DECODE, url=f"http://w/{text}", version=text, source=text)
    hostile = failing(info=names, facts=facts(worker(Role.PREFILL), odd, notes=(text,)))
    hostile = hostile.model_copy(
        update={
            "stopped": text,
            "findings": (
                *hostile.findings,
                finding(title=text, evidence=(text,), remedy=text, stratum=text),
            ),
        }
    )
    said = shown(hostile)
    for forbidden in "\x1b\x07\x9b\u202e\u202c\u2066\u2069\u200f\r\t\x0b\x0c\x85\u2028\x00":
        assert forbidden not in said
    assert " FAIL " in said
    assert "2 of 3 answers in `edge`" in said
    assert len(said) < 40_000
    if text is MARKUP:
        assert (
            "".join(said.split()).count("[boldred]PASS[/boldred][/][link=http://evil]x[/link]") >= 6
        )


def test_brackets_in_addresses_are_no_markup() -> None:
    addresses = ("http://[fe80::1]:30000", "http://[::1]:30001")
    deployment = facts(*(worker(Role.UNIFIED, url=url) for url in addresses))
    said = shown(judged(healthy(facts=deployment)))
    for url in addresses:
        assert url in said


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_width_cuts_a_figure(width: int) -> None:
    run = failing(facts=sound(prefill=1_234_567, decode=12_345_678))
    assert run.verdict
    said = shown(run, width)
    for figure in ("1,234,567", "12,345,678", "65,000", "8,000", "<63%"):
        assert figure in said
    for stratum in run.verdict.strata:
        assert f"  {stratum.name} " in said
    assert "…" not in said


def test_the_peak_of_each_pool_is_one_line() -> None:
    told = Series(
        worker="P1", source="test", pool_tokens=800, at_seconds=(0, 1), used_tokens=(600, None)
    )
    bare = Series(worker="D1", source="test", at_seconds=(0,), used_tokens=(70_000,))
    silent = [Series(worker=f"D{n}", source="test") for n in range(2, 18)]
    went_on = told.model_copy(update={"used_tokens": (500, 0)})
    text = shown(judged(healthy(series=(told, bare, *silent, went_on))), width=1_000)
    (line,) = (line for line in text.splitlines() if "most in use" in line)
    assert line.startswith("  most in use: P1 600 of 800 (75%), D1 70,000, D2 unknown, ")
    assert line.endswith("D15 unknown and 2 more in the record")
    assert "most in use" not in shown(judged(healthy()))


def test_a_record_without_an_end_is_said_to_have_none() -> None:
    said = shown(record(stopped="interrupted"), path=None)
    assert "The run did not finish: interrupted." in said
    assert "PASS" not in said
    assert "The run did not finish: interrupted." in shown(RunRecord(info=info()))


# JUnit


def cases(run: RunRecord) -> dict[str, ET.Element]:
    root = ET.fromstring(junit.render(run))
    found = root.findall(".//testcase")
    names = [(case.get("classname"), case.get("name")) for case in found]
    assert len(set(names)) == len(names)
    return {case.get("name") or "": case for case in found}


def test_a_claim_is_a_case_with_failure_error_or_skipped() -> None:
    told = cases(failing())
    assert list(told) == [name.value for name in ClaimName]
    failure = told["isolation"].find("failure")
    assert failure is not None
    assert failure.get("message") == "2 of 3 answers in `edge` hold text of other requests"
    assert "request 10 (65,000 tokens) holds text of" in (failure.text or "")
    assert told["refusal"].find("skipped") is not None
    assert told["accounting"].find("*") is None or told["accounting"].find("system-out") is not None
    unmeasured = cases(judged(healthy(exchanges=[])))
    assert unmeasured["ownership"].find("error") is not None
    assert unmeasured["isolation"].find("failure") is None


def test_a_run_without_an_end_is_one_error() -> None:
    (case,) = cases(record(stopped="interrupted")).values()
    error = case.find("error")
    assert error is not None
    assert "interrupted" in (error.get("message") or "")


@pytest.mark.parametrize("text", [*HOSTILE[:4], "]]>", "<a&b>\"'", "\ufffe\uffff"])
def test_no_text_breaks_the_xml(text: str) -> None:
    run = failing(info=info(target=text, model=text))
    run = run.model_copy(update={"findings": (finding(title=text, evidence=(text,)),)})
    assert run.verdict
    claims = tuple(c.model_copy(update={"text": text}) for c in run.verdict.claims)
    run = run.model_copy(update={"verdict": run.verdict.model_copy(update={"claims": claims})})
    assert len(cases(run)) == len(ClaimName)
    cases(record(stopped=text))

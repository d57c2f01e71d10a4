"""The HTML report as text: the same for the same record, whatever the record holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.report.html import render
from kvcanary.report.html.document import MAX_TEXT, plain, prose
from kvcanary.report.html.figure import MAX_FINDINGS
from kvcanary.report.html.page import MAX_EVIDENCE, MAX_FOLDED, page_of
from tests.builders import finding
from tests.report.html.records import leaking
from tests.report.scenes import VERDICTS, failing, passing

ANEW = """
import sys
from kvcanary.report.html import render
from tests.report.html.records import leaking
sys.stdout.write(render(leaking()))
"""
COMMANDS = """
import sys
import kvcanary.cli.check, kvcanary.cli.report, kvcanary.report.summary
print("jinja2" in sys.modules)
"""


def test_the_same_record_gives_the_same_bytes() -> None:
    """In other processes, too, where sets have other orders."""
    texts = {
        subprocess.run(
            [sys.executable, "-c", ANEW],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path.cwd()), "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert texts == {render(leaking())}


def test_no_other_command_loads_the_templating() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "False\n"


@pytest.mark.parametrize("name", VERDICTS)
def test_it_forbids_everything_but_its_own_style(name: str) -> None:
    text = render(VERDICTS[name]())
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in text
    assert "<script" not in text.lower()
    assert "http-equiv" in text.partition("<title>")[0]
    for url in ("src=", "@import", "url(http"):
        assert url not in text.replace("-src", "")


@given(st.text() | st.text(alphabet=st.characters(categories=["Cc", "Cf", "Mn", "Zl", "Zs"])))
def test_any_text_becomes_harmless(text: str) -> None:
    shown = plain(text)
    assert isinstance(shown, str)
    assert all(c.isprintable() or c == "\u00a0" for c in shown)
    assert len(shown) <= MAX_TEXT + 2
    assert "<" not in str(prose(text)).replace("<code>", "").replace("</code>", "")


def test_piles_of_accents_are_cut() -> None:
    assert plain("a" + 50 * "\u0301" + "b") == "a\u0301\u0301b"


def test_names_in_backticks_become_code() -> None:
    assert prose("4 of `a<b`, `c") == "4 of <code>a&lt;b</code>, `c"


def test_evidence_and_findings_have_a_bound_that_is_said() -> None:
    lines = tuple(f"line {n}" for n in range(MAX_EVIDENCE + MAX_FOLDED + 5))
    many = tuple(finding(evidence=lines) for _ in range(MAX_FINDINGS + 3))
    text = render(failing().model_copy(update={"findings": many}))
    assert text.count("5 further lines are in the record.") == MAX_FINDINGS
    assert "3 further findings are in the record." in text


def test_a_command_is_only_shown_where_it_can_be_copied() -> None:
    odd = failing().model_copy(update={"findings": (finding(rule="x; rm -rf ~", exchanges=()),)})
    text = render(odd)
    assert "kvcanary explain" not in text
    assert "kvcanary replay" not in text


def test_the_page_begins_with_the_verdict_and_its_power() -> None:
    page = page_of(passing())
    assert (page.word, page.exit_code) == ("PASS", 0)
    said = {one.name: one.value for one in page.power}
    assert said["Tested up to"] == "65,000 tokens"
    assert said["Positive control"] == "2 of 2 decoys"
    assert said["Bad answers, worst stratum"] == "0 of 3"
    text = render(passing())
    assert text.index("PASS") < text.index("Tested up to") < text.index('id="findings"')


def test_what_was_not_measured_is_named() -> None:
    gaps = page_of(passing()).gaps
    assert any(gap.startswith("refusal: not assessed") for gap in gaps)
    assert any("mix-ups between API keys" in gap for gap in gaps)

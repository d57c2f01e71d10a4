"""What the documentation says is so: generated parts are fresh, links lead somewhere, every rule has its
section and every command that is shown can be parsed."""

import ast
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import kvcanary
from kvcanary.cli import cli
from kvcanary.probing.buying import NO_LIMIT
from kvcanary.probing.estimate import estimate
from kvcanary.probing.grammar import load_probes, load_suite
from kvcanary.probing.intrusive import intrusive
from kvcanary.verdict.claims import ExitCode
from kvcanary.verdict.findings import Severity

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(Path(kvcanary.__file__).parent.rglob("*.py"))

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def test_what_is_generated_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "43", "PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- links -----------------------------------------------------------------------------------------


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose(page)):
        kept = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{kept}-{seen[kept]}" if seen[kept] else kept)
        seen[kept] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    """Those inside the repository: others are not fetched."""
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.is_relative_to(ROOT), target
        assert file.exists(), f"{target}: there is no such file"
        if anchor:
            assert anchor in anchors(file), f"{target}: there is no such heading"


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {
        (ROOT / target.partition("#")[0]).resolve()
        for target in _LINK.findall(prose(ROOT / "README.md"))
    }
    assert [page for page in PAGES if page.name != "README.md" and page not in linked] == []


# -- findings and exit codes -----------------------------------------------------------------------


def rules() -> Iterator[str]:
    """Every rule id that a detector can give a finding: FAMILY/NAME, the family known to the verdict."""
    for source in SOURCES:
        if source.parent.name in ("detect", "verdict"):
            for node in ast.walk(ast.parse(source.read_text("utf-8"))):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and re.fullmatch(r"[a-z-]+/[a-z-]+", text):
                    yield text


def test_every_rule_has_its_section_and_no_other_has() -> None:
    page = (ROOT / "docs" / "findings.md").read_text("utf-8")
    found = set(rules())
    assert len(found) >= 15
    assert {h for h in _HEADING.findall(page) if "/" in h} == found
    assert set(re.findall(r"^\| \[([^\]]+)\]", page, re.MULTILINE)) == found


def test_every_severity_is_named() -> None:
    page = (ROOT / "docs" / "findings.md").read_text("utf-8")
    assert ", ".join(f"`{severity.value}`" for severity in Severity) in page


def test_every_exit_code_is_explained() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| ([a-z ]+) \|", page, re.MULTILINE))
    assert rows == {str(int(c)): c.name.lower().replace("_", " ") for c in ExitCode}


# -- commands --------------------------------------------------------------------------------------


def shown() -> Iterator[tuple[str, list[str]]]:
    """Every kvcanary command in a shell block of the documentation, as page and arguments."""
    for page in PAGES:
        for block in _SHELL.findall(page.read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words and Path(words[0]).name == "kvcanary":
                    yield page.name, words[1:]


@pytest.mark.parametrize(("page", "words"), list(shown()), ids=lambda v: " ".join(v) if v else "")
def test_commands_that_are_shown_can_be_parsed(page: str, words: list[str]) -> None:
    command: click.Command = cli
    context = cli.make_context("kvcanary", [], resilient_parsing=True)
    rest = list(words)
    while isinstance(command, click.Group):
        child = command.get_command(context, rest.pop(0))
        assert child, f"{page}: there is no such command"
        command = child
    context = click.Context(command, parent=context)
    given, left_over, _ = command.make_parser(context).parse_args(rest)
    assert not left_over, f"{page}: arguments that the command does not take"
    for parameter in command.params:
        if parameter.required:
            assert given.get(parameter.name), f"{page}: {parameter.name} is missing"


def test_shell_blocks_are_found() -> None:
    assert len(list(shown())) > 5


def test_the_probe_and_the_suite_of_the_guide_hold(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "write-a-probe.md").read_text("utf-8")
    probe, suite = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "after-a-drop.yaml").write_text(probe)
    (tmp_path / "ours.yaml").write_text(suite)
    ours = load_suite(str(tmp_path / "ours.yaml"))
    probes = load_probes(ours.probes)
    assert intrusive(probes[-1]), "the guide says so"
    for context in (4_096, 1_048_576):
        note = estimate(ours, probes, context, "given", 4, NO_LIMIT)
        assert {"after-a-drop/next", "after-a-drop/crowd"} <= {s.stratum for s in note.stages}

"""Where each stratum comes from: the file and line that reports point at."""

from pathlib import Path

import pytest

from kvcanary.data import data_path
from kvcanary.probing.grammar import load_probe, load_probes, load_suite, shipped
from kvcanary.probing.sources import sources

OWN = """\
id: mine
title: A probe of one's own
mechanism: [capacity-contract]
why: group is a word
references: [S30233]
blind_to: much
steps:
  - {do: read, tokens: 100, group: first}
  - do: read
    group: "second"
    tokens: 200
"""


@pytest.mark.parametrize("name", shipped("probes"))
def test_each_group_of_a_shipped_probe_has_its_line(name: str) -> None:
    found = sources("check", (load_probe(name),), (name,))
    text = (data_path("probes") / f"{name}.yaml").read_text()
    lines = text.splitlines()
    groups = {s.group: s.line for s in found if s.group}
    assert len(groups) == len(
        {
            g
            for line in lines
            if "group:" in line
            for g in [line.split("group:")[1].split()[0].strip("},")]
        }
    )
    for group, line in groups.items():
        assert str(group).removeprefix(f"{name}/") in lines[line - 1]
    assert {s.path for s in found} == {"suites/check.yaml", f"probes/{name}.yaml"}


def test_a_suite_names_the_files_of_all_its_probes() -> None:
    suite = load_suite("predeploy")
    found = sources("predeploy", load_probes(suite.probes), suite.probes)
    assert found[0].path == "suites/predeploy.yaml"
    assert {s.path for s in found[1:]} == {f"probes/{name}.yaml" for name in suite.probes}


@pytest.mark.parametrize(
    ("repository", "shown"), [(True, "canary/mine.yaml"), (False, "mine.yaml")]
)
def test_ones_own_is_named_as_its_repository_does(
    repository: bool, shown: str, tmp_path: Path
) -> None:
    """Never by a folder of the machine that it was run on."""
    file = tmp_path / "canary" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(OWN)
    if repository:
        (tmp_path / ".git").mkdir()
    found = sources("check", (load_probe(str(file)),), (str(file),))
    assert [(s.path, s.line, s.group) for s in found[1:]] == [
        (shown, 1, None),
        (shown, 8, "mine/first"),
        (shown, 10, "mine/second"),
    ]

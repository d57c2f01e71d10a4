"""Probes and suites as data: whatever is wrong in a file is said with its place."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.errors import ConfigError
from kvcanary.probing.grammar import Abort, Together, Wait, load_probe, load_suite, shipped
from kvcanary.probing.mechanisms import Mechanism

PROBE = """\
id: mine
title: A probe
mechanism: [slot-reuse]
why: because
blind_to: much
steps:
  - do: fill
    group: victims
    tokens: pool
    longest: reach
  - do: read
    group: edge
    tokens: reach / 2
"""


def complaint(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_probe(str(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_probe_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(PROBE)
    assert load_probe(str(path)).groups == ("victims", "edge")


def test_everything_that_is_shipped_loads() -> None:
    assert "oversize" in shipped("probes")
    assert "check" in shipped("suites")
    for identifier in shipped("probes"):
        assert load_probe(identifier).id == identifier
    for identifier in shipped("suites"):
        suite = load_suite(identifier)
        assert suite.id == identifier
        for probe in suite.probes:
            load_probe(probe)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("blind_to", "blind_too", ("5:1", "blind_too", "did you mean `blind_to`?")),
        ("longest: reach", "longst: reach", ("10:5", "longst", "did you mean `longest`?")),
        ("tokens: reach / 2", "tokens: raech / 2", ("13:5", "tokens", "did you mean `reach`?")),
        ("tokens: pool", "tokens: 9 ** 9", ("9:5", "not allowed")),
        ("do: fill", "do: fil", ("fil", "did you mean `fill`?")),
        ("title: A probe\n", "", ("title", "missing")),
        ("id: mine", "id: [mine", ("not valid YAML",)),
        ("id: mine", "id: mine\nid: other", ("2:1", "`id` is given twice")),
        ("tokens: reach / 2", "tokens: reach / 2\n    count: 0", ("count",)),
        ("tokens: reach / 2", "tokens: reach / 2\n    count: 1000000000", ("count",)),
        ("id: mine", "id: !!python/object/apply:os.system ['true']", ("not valid YAML",)),
        ("group: edge", "group: edge\n    control: maybe", ("13:5", "`true` or `false` is needed")),
        ("group: edge", "group: edge\n    count: many", ("13:5", "a whole number is needed")),
        ("group: edge", "group: edge\n    danger: many", ("13:5", "a number is needed")),
        ("title: A probe", "title: 5", ("2:1", "text is needed")),
        ("- do: read\n    group", "- group", ("11:5", "the key `do` is missing")),
        ("- do: fill", "- fill\n  - do: fill", ("7:5", "keys with values are needed")),
        ("id: mine", "id: " + "[" * 5_000, ("nested too deeply",)),
        (PROBE, "", ("keys with values are needed",)),
        (PROBE, "- 1", ("keys with values are needed",)),
        (PROBE, "\0", ("not valid YAML",)),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    old: str, new: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    assert old in PROBE
    said = complaint(tmp_path, PROBE.replace(old, new, 1))
    for word in words:
        assert word in said


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "big.yaml").write_text("a: " + "x" * 2_000_000)
    (tmp_path / "bomb.yaml").write_text("a: " + "[" * 3_000)
    for name in ("binary.yaml", "big.yaml", "bomb.yaml", "missing.yaml", "."):
        with pytest.raises(ConfigError):
            load_probe(f"{tmp_path}/{name}")


def test_an_unknown_id_names_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"no probe `oversized`.*oversize"):
        load_probe("oversized")
    with pytest.raises(ConfigError, match=r"no suite `../probes/x`|cannot be read"):
        load_suite("../probes/x")


@given(st.text(max_size=200))
@settings(deadline=None, derandomize=True)
def test_any_text_is_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "mine.yaml"
    path.write_text(text, "utf-8", "surrogatepass")
    with pytest.raises(ConfigError):
        load_probe(str(path))


STEPS = """\
id: mine
title: A probe
mechanism: [freed-too-early]
why: because
blind_to: much
needs: [streaming]
steps:
  - do: abort
    group: after
    tokens: reach / 4
    at: [0.5, first token]
  - do: wait
    seconds: 2
    until: idle
  - do: together
    steps:
      - do: read
        group: one
        tokens: reach / 8
        expect: answered
      - do: abort
        group: other
        tokens: reach / 8
        at: [prefill]
"""


def test_every_kind_of_step_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(STEPS)
    probe = load_probe(str(path))
    assert probe.groups == ("after", "one", "other")
    abort, wait, together = probe.steps
    assert isinstance(abort, Abort)
    assert abort.at == (0.5, "first token")
    assert isinstance(wait, Wait)
    assert (wait.seconds, wait.until) == (2, "idle")
    assert isinstance(together, Together)
    assert isinstance(together.steps[1], Abort)
    assert together.steps[1].at == (0.5,), "`prefill` is half way"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("freed-too-early", "freed-to-early", ("3:13", "did you mean `freed-too-early`?")),
        ("[freed-too-early]", "[]", ("3:1", "at least one is needed")),
        ("[streaming]", "[steaming]", ("6:9", "did you mean `streaming`?")),
        ("expect: answered", "expect: anserwed", ("20:9", "did you mean `answered`?")),
        ("first token]", "frist token]", ("11:15", "did you mean `first token`?")),
        ("at: [0.5", "at: [0", ("11:10", "above 0")),
        ("at: [0.5", "at: [2.5", ("11:10", "up to 2")),
        ("at: [0.5", "at: [.nan", ("11:10", "above 0")),
        ("at: [0.5, first token]", "at: []", ("11:5", "at least one is needed")),
        ("until: idle", "until: ilde", ("14:5", "did you mean `idle`?")),
        ("seconds: 2", "seconds: .inf", ("13:5", "seconds")),
        ("seconds: 2", "seconds: -1", ("13:5", "seconds")),
        ("group: other", "group: one", ("one", "steps that differ")),
        ("group: other", "group: dropped", ("22:9", "every run has")),
        (STEPS[STEPS.index("      - do: abort") :], "", ("16:5", "at least two are needed")),
        (STEPS[STEPS.index("  - do: abort") :], "  - {do: wait, seconds: 1}", ("nothing is sent",)),
        ("do: together", "do: togehter", ("did you mean `together`?",)),
    ],
)
def test_what_is_wrong_with_a_step_is_said_with_its_place(
    old: str, new: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    said = complaint(tmp_path, STEPS.replace(old, new, 1))
    for word in words:
        assert word in said, said


@pytest.mark.parametrize(
    ("load", "name", "nearest"),
    [(load_probe, "oversise", "oversize"), (load_suite, "pre-deploy", "predeploy")],
)
def test_an_unknown_id_has_a_nearest_name(
    load: Callable[[str], object], name: str, nearest: str
) -> None:
    with pytest.raises(ConfigError, match=f"did you mean `{nearest}`"):
        load(name)


def test_every_mechanism_has_its_line() -> None:
    assert all(len(mechanism.meaning) > 20 for mechanism in Mechanism)


@pytest.mark.parametrize("budget", ["limit", "min(1000, pool)", "2 * reach"])
def test_a_budget_of_something_unknown_is_none_at_all(budget: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    suite = "id: mine\ntitle: t\nprobes: [short]\nrequires: [ownership]\ntokens: "
    path.write_text(suite + budget)
    with pytest.raises(ConfigError, match=r"mine.yaml:5:1: tokens: .* only `context`"):
        load_suite(str(path))
    path.write_text(suite + "min(1000, 2 * context)")
    assert load_suite(str(path)).tokens == "min(1000, 2 * context)"

"""Probes and suites of one's own: they run beside the shipped ones, and each mistake is said with its place."""

from pathlib import Path

import pytest

from kvcanary.errors import ConfigError
from kvcanary.probing.grammar import Read, load_probe, load_probes, load_suite
from kvcanary.record.journal import load
from kvcanary.verdict.claims import ClaimName
from tests.cli.command import kvcanary

PROBE = """\
id: mine
title: A probe
mechanism: [slot-reuse]
why: because
blind_to: much
output: 96
steps:
  - do: read
    group: thousand
    tokens: min(reach, 1000)
    count: 3
  - do: read
    group: control
    control: true
    tokens: 700
"""
SUITE = """\
id: ours
title: A suite
probes: [mine.yaml]
requires: [ownership]
tokens: 9 * context
"""


def complaint(folder: Path, text: str, *, suite: bool = False) -> str:
    """What is wrong with the text, less its path."""
    path = folder / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        (load_suite if suite else load_probe)(str(path))
    said = str(caught.value)
    assert said.startswith(str(path))
    return said.replace(str(path), "mine.yaml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "count: 3",
            "cuont: 3",
            "mine.yaml:11:5: steps.0.cuont: there is no such key; did you mean `count`?",
        ),
        (
            "blind_to",
            "blind-to",
            "mine.yaml:5:1: blind-to: there is no such key; did you mean `blind_to`?",
        ),
        (
            "do: read",
            "do: raed",
            "mine.yaml:8:5: steps.0: `raed` is not a kind of step; did you mean `read`?",
        ),
        (
            "reach,",
            "raech,",
            "mine.yaml:10:5: steps.0.tokens: `min(raech, 1000)`: there is no name `raech`; did you mean `reach`?",
        ),
        (
            "min(",
            "mni(",
            "mine.yaml:10:5: steps.0.tokens: `mni(reach, 1000)`: there is no function `mni`; did you mean `min`?",
        ),
        ("min(reach, 1000)", "yes", "mine.yaml:10:5: steps.0.tokens: a length is needed"),
        ("min(reach, 1000)", "[1000]", "mine.yaml:10:5: steps.0.tokens: a length is needed"),
        ("count: 3", "count: 3\n    count: 4", "mine.yaml:12:5: `count` is given twice."),
        ("    count: 3", "\tcount: 3", "mine.yaml:11:1: not valid YAML"),
        (
            "count: 3",
            "count: three",
            "mine.yaml:11:5: steps.0.count: a whole number is needed",
        ),
        ("output: 96", "output: 96.5", "mine.yaml:6:1: output: a whole number is needed"),
        ("[slot-reuse]", "slot-reuse", "mine.yaml:3:1: mechanism: a list is needed"),
        (
            "[slot-reuse]",
            "[1]",
            "mine.yaml:3:13: mechanism.0: `1` is not one of them; did you mean",
        ),
        (
            "group: thousand",
            "group: calibration",
            "mine.yaml:9:5: steps.0.group: `calibration` is a stratum that every run has",
        ),
        (
            "group: thousand",
            'group: "a\\e[31mb"',
            "mine.yaml:9:5: steps.0.group: a stratum's name has small letters",
        ),
        (
            "group: thousand",
            "group: control",
            "mine.yaml:7:1: steps: `control` is the stratum of steps that differ",
        ),
        (
            "title: A probe",
            "title: *nowhere",
            "mine.yaml:2:8: not valid YAML: found undefined alias",
        ),
        ("title: A probe", "title: A probe\n1: x", "mine.yaml:3:1: a key has to be a word."),
        ("title: A probe", "title: A probe\n? [1]\n: x", "mine.yaml:3:3: a key has to be a word."),
        ("title: A probe", "title: A probe\nyes: x", "mine.yaml:3:1: a key has to be a word."),
    ],
)
def test_a_mistake_in_a_probe(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in PROBE
    assert complaint(tmp_path, PROBE.replace(old, new, 1)).startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[ownership]",
            "[ownreship]",
            "mine.yaml:4:12: requires.0: `ownreship` is not one of them; did you mean `ownership`?",
        ),
        ("[ownership]", "[]", "mine.yaml:4:1: requires: at least one is needed"),
        ("[ownership]", "ownership", "mine.yaml:4:1: requires: a list is needed"),
        (
            "9 * context",
            "9 * contxet",
            "mine.yaml:5:1: tokens: `9 * contxet`: there is no name `contxet`; did you mean `context`?",
        ),
        (
            "tokens: 9 * context",
            "minutes: 0",
            "mine.yaml:5:1: minutes: input should be greater than 0",
        ),
        (
            "tokens: 9 * context",
            "stop_when_proved: true",
            "mine.yaml:5:1: stop_when_proved: there is no such key; did you mean `stop_when_proven`?",
        ),
    ],
)
def test_a_mistake_in_a_suite(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in SUITE
    assert complaint(tmp_path, SUITE.replace(old, new, 1), suite=True).startswith(said)


def laughs(first: str, inner: str, join: str) -> str:
    """Ten aliases of ten aliases of ten ... : 10^12 values in a dozen lines."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, 13):
        values = join.join(inner.format(i, level - 1) for i in range(10))
        brackets = "{%s}" if ":" in inner else "[%s]"
        lines.append(f"a{level}: &a{level} {brackets % values}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "bomb",
    [
        laughs("[x, x]", "*a{1}", ", "),
        laughs("{k: x}", "k{0}: *a{1}", ", "),
        "why: &a [*a]",
        "why: &a {k: *a}",
        "why: " + "[" * 60 + "]" * 60,
        "why: [" + "x," * 30_000 + "]",
    ],
)
def test_what_grows_without_end_is_refused(bomb: str, tmp_path: Path) -> None:
    said = complaint(tmp_path, f"{PROBE}\n{bomb}".replace("why: because\n", "", 1))
    assert "too many values, or nested too deeply" in said
    assert len(said) < 300


def test_a_wrong_value_is_not_repeated_at_length(tmp_path: Path) -> None:
    said = complaint(tmp_path, PROBE.replace("do: read", f"do: {'x' * 5_000}", 1))
    assert len(said) < 500


def test_anchors_that_stay_small_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(PROBE.replace("tokens: min", "tokens: &long min").replace("700", "*long"))
    one, two = load_probe(str(path)).steps
    assert isinstance(one, Read)
    assert isinstance(two, Read)
    assert one.tokens == two.tokens


def test_a_plain_number_is_a_length(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(PROBE)
    step = load_probe(str(path)).steps[1]
    assert isinstance(step, Read)
    assert step.tokens == "700"


def test_a_suite_s_probes_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command is run from; shipped ones are meant by their ids."""
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "mine.yaml").write_text(PROBE)
    suite = tmp_path / "ours.yaml"
    suite.write_text(SUITE.replace("[mine.yaml]", "[short, probes/mine.yaml]"))
    monkeypatch.chdir(tmp_path / "probes")
    loaded = load_suite(str(suite))
    assert [p.id for p in load_probes(loaded.probes)] == ["short", "mine"]
    assert loaded.requires == (ClaimName.OWNERSHIP,)


def test_two_probes_of_one_id_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(PROBE.replace("id: mine", "id: short"))
    with pytest.raises(ConfigError, match="another probe of this run has the id `short`"):
        load_probes(["short", str(path)])


def test_a_probe_and_a_suite_of_one_s_own_run(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PROBE)
    (tmp_path / "ours.yaml").write_text(SUITE)
    record = tmp_path / "run.jsonl"
    listed = kvcanary(tmp_path, "suites", str(tmp_path / "ours.yaml"))
    assert "mine" in listed.out
    ended = kvcanary(
        tmp_path,
        *("check", "lab:healthy?context=4096", "--suite", str(tmp_path / "ours.yaml")),
        *("--record", str(record)),
    )
    assert ended.code == 0
    run = load(record)
    assert run.info.suite == "ours"
    assert {e.group for e in run.exchanges} >= {"thousand", "control"}
    sent = [e for e in run.exchanges if e.group == "thousand"]
    assert all(900 < e.length_tokens <= 1_000 for e in sent)


@pytest.mark.parametrize("name", ["mine.yaml", "nowhere.yaml"])
def test_a_broken_one_is_exit_2(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PROBE.replace("count: 3", "cuont: 3"))
    (tmp_path / "ours.yaml").write_text(SUITE.replace("mine.yaml", name))
    ended = kvcanary(
        tmp_path, "check", "lab:healthy?context=4096", "--suite", str(tmp_path / "ours.yaml")
    )
    assert ended.code == 2
    assert name in ended.err

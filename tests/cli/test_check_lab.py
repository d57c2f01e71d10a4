"""End to end on the lab in small: what a person types, what they get, and that every way gives the same."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcanary.record.exchange import Purpose
from kvcanary.record.journal import load
from kvcanary.record.run import RunRecord
from tests.cli.command import COMMAND, GUARD_SECONDS, Ended, environment, kvcanary

HEALTHY = "lab:healthy?context=16384"
SICK = "lab:glm-5.3?context=16384"
PATCHED = "lab:glm-5.3-patched?context=16384"


def checked(folder: Path, *arguments: str) -> tuple[Ended, RunRecord]:
    path = folder / "run.jsonl"
    ended = kvcanary(folder, "check", *arguments, "--record", str(path))
    return ended, load(path)


def claims(record: RunRecord) -> dict[str, str]:
    assert record.verdict
    return {c.name.value: c.status.value for c in record.verdict.claims}


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, RunRecord]:
    folder = tmp_path_factory.mktemp("sick")
    return folder, *checked(folder, SICK)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, RunRecord]:
    folder = tmp_path_factory.mktemp("healthy")
    return folder, *checked(folder, HEALTHY)


def test_healthy_passes_without_a_finding_of_any_severity(
    healthy: tuple[Path, Ended, RunRecord],
) -> None:
    _, ended, record = healthy
    assert ended.code == 0
    assert record.findings == ()
    assert claims(record) == {
        "ownership": "pass",
        "isolation": "pass",
        "capacity": "pass",
        "refusal": "inconclusive",
        "accounting": "pass",
    }
    assert record.verdict
    for stratum in record.verdict.strata:
        if stratum.purpose == "reader":
            assert stratum.bound is not None
            assert stratum.exposure == "measured"
            assert stratum.exposed_tokens
    # a decoy that the model's own noise spoilt is sent once more
    assert 2 <= record.verdict.decoys_seen <= record.verdict.decoys_sent <= 4
    assert "PASS" in ended.out


def test_the_incident_fails_with_every_kind_of_evidence(
    sick: tuple[Path, Ended, RunRecord],
) -> None:
    _, ended, record = sick
    assert ended.code == 1
    assert {f.rule for f in record.findings} >= {
        "isolation/foreign-text",
        "ownership/labels-lost",
        "capacity/pool-below-context",
        "refusal/answered-over-limit",
    }
    groups = {f.stratum for f in record.findings if f.rule == "ownership/labels-lost"}
    assert groups == {"window", "edge"}
    control = [e for e in record.exchanges if e.purpose is Purpose.CONTROL]
    bystanders = [e for e in record.exchanges if e.purpose is Purpose.BYSTANDER]
    assert all(e.kept and not e.foreign for e in control)
    assert all(e.kept and not e.foreign for e in bystanders)
    assert "danger window" in ended.out
    assert "replay  kvcanary replay" in ended.out


def test_the_right_gate_refuses_cleanly_and_leaks_nothing(tmp_path: Path) -> None:
    ended, record = checked(tmp_path, PATCHED)
    assert ended.code == 1
    rules = [f.rule for f in record.findings]
    assert rules == ["capacity/pool-below-context", "capacity/danger-window"]
    assert claims(record)["refusal"] == "pass"
    assert claims(record)["ownership"] == claims(record)["isolation"] == "pass"
    refused = [e for e in record.exchanges if e.outcome == "refused"]
    assert refused
    assert all(e.refusal and e.refusal.limit_tokens for e in refused)
    assert not any(e.foreign for e in record.exchanges)


@pytest.mark.parametrize(("target", "code"), [(SICK, 1), (HEALTHY, 0)])
def test_with_the_front_door_alone(target: str, code: int, tmp_path: Path) -> None:
    ended, record = checked(tmp_path, f"{target}&front_door_only")
    assert ended.code == code, ended.said
    assert record.facts
    assert record.facts.workers == ()
    assert claims(record)["capacity"] == "inconclusive"
    if code:
        assert claims(record)["ownership"] == "fail"
    else:
        assert record.findings == ()


@pytest.mark.parametrize(
    ("target", "code", "options"),
    [
        (SICK, 1, ("--no-stream",)),
        (SICK, 1, ("--api", "completions")),
        (HEALTHY, 0, ("--no-stream", "--api", "completions")),
    ],
)
def test_in_every_dialect(target: str, code: int, options: tuple[str, ...], tmp_path: Path) -> None:
    ended, record = checked(tmp_path, target, *options)
    assert ended.code == code, ended.said
    readers = [e for e in record.exchanges if e.purpose is Purpose.READER]
    assert {e.api for e in readers} == {"completions" if "completions" in options else "chat"}
    assert {e.stream for e in readers} == {"--no-stream" not in options}
    if code:
        assert {"isolation/foreign-text", "ownership/labels-lost"} <= {
            f.rule for f in record.findings
        }
    else:
        assert record.findings == ()


def test_report_says_the_same(
    sick: tuple[Path, Ended, RunRecord], healthy: tuple[Path, Ended, RunRecord]
) -> None:
    for folder, ended, record in (sick, healthy):
        again = kvcanary(folder, "report", str(folder / "run.jsonl"))
        assert (again.code, again.out) == (ended.code, ended.out)
        assert again.err == ""
        told = kvcanary(folder, "report", str(folder / "run.jsonl"), "-o", "json")
        assert RunRecord.model_validate_json(told.out) == record


def test_the_reports_are_those_of_the_record(sick: tuple[Path, Ended, RunRecord]) -> None:
    folder, _, record = sick
    junit, as_json = folder / "junit.xml", folder / "run.json"
    ended = kvcanary(
        folder,
        "report",
        str(folder / "run.jsonl"),
        "--report",
        f"junit={junit}",
        "--report",
        f"json={as_json}",
    )
    assert ended.code == 1
    assert RunRecord.model_validate_json(as_json.read_text()) == record
    root = ET.parse(junit).getroot()
    cases = root.findall(".//testcase")
    assert len({(c.get("classname"), c.get("name")) for c in cases}) == len(cases) == 5
    failed = {c.get("name") for c in cases if c.find("failure") is not None}
    assert failed == {name for name, status in claims(record).items() if status == "fail"}
    suite = root.find("testsuite")
    assert suite is not None
    assert suite.get("failures") == str(len(failed))
    assert suite.get("tests") == "5"
    assert json.loads(as_json.read_text())["verdict"]["exit_code"] == 1


def test_the_record_holds_no_text_of_the_prompts_or_answers(
    sick: tuple[Path, Ended, RunRecord],
) -> None:
    """Our own names may stand in it; codes, words and answers may not."""
    folder, _, record = sick
    text = (folder / "run.jsonl").read_text()
    assert "KVC-" not in text
    assert "ledger" not in text
    assert "the keeper of" not in text
    assert len(record.info.tenants) > 3


# replay


@pytest.mark.parametrize("rule", ["ownership/labels-lost", "accounting/prefill-decode"])
def test_a_replay_of_the_incident_meets_it_again(
    sick: tuple[Path, Ended, RunRecord], rule: str
) -> None:
    """Of one stratum, and of all of them."""
    folder, _, record = sick
    number = 1 + [f.rule for f in record.findings].index(rule)
    report = folder / "replay.json"
    path, wanted = str(folder / "run.jsonl"), f"json={report}"
    ended = kvcanary(folder, "replay", path, f"F{number}", "--report", wanted)
    assert ended.code == 1, ended.said
    told = RunRecord.model_validate_json(report.read_text())
    assert told.info.replays == f"{record.info.run:07x}/{rule}"
    assert rule in {f.rule for f in told.findings}
    assert "with the same text: it came back" in ended.out
    assert "with fresh text: it came back" in ended.out


def test_a_replay_elsewhere_finds_it_gone(sick: tuple[Path, Ended, RunRecord]) -> None:
    folder, _, record = sick
    number = 1 + [f.rule for f in record.findings].index("ownership/labels-lost")
    ended = kvcanary(
        folder,
        "replay",
        str(folder / "run.jsonl"),
        f"F{number}",
        "--text",
        "fresh",
        "--target",
        HEALTHY,
        "--report",
        f"json={folder}/nowhere/../replay.json",
    )
    assert ended.code == 2, "nothing is sent for a report that cannot be written"
    assert "is its folder there?" in ended.said
    ended = kvcanary(
        folder,
        *("replay", str(folder / "run.jsonl"), f"F{number}", "--text", "fresh"),
        *("--target", HEALTHY, "--report", f"junit={folder}/replay.xml"),
    )
    assert ended.code == 0, ended.said
    assert "it did not come back" in ended.out
    assert "<failure" not in (folder / "replay.xml").read_text()


def test_what_cannot_be_replayed(sick: tuple[Path, Ended, RunRecord], tmp_path: Path) -> None:
    folder, _, record = sick
    path = str(folder / "run.jsonl")
    number = 1 + [f.rule for f in record.findings].index("capacity/pool-below-context")
    for finding, words in (
        ("F99", "no finding `F99`; it has: F1"),
        ("F²", "no finding"),
        ("x", "no finding `x`"),
        (f"F{number}", "comes from figures, not from requests"),
    ):
        ended = kvcanary(folder, "replay", path, finding)
        assert ended.code == 2
        assert words in ended.said
        assert "Traceback" not in ended.said
    ended = kvcanary(tmp_path, "replay", path, "F1")
    assert ended.code == 2
    assert "another site key" in ended.said
    forged = folder / "forged.jsonl"
    forged.write_text((folder / "run.jsonl").read_text().replace('"api": "chat"', '"api": "smoke"'))
    ended = kvcanary(folder, "replay", str(forged), "F1")
    assert ended.code == 2
    assert "not written by kvcanary" in ended.said


# over real HTTP


@pytest.fixture(scope="module", params=["glm-5.3", "healthy"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, object]]]:
    folder = tmp_path_factory.mktemp("served")
    with subprocess.Popen(
        [*COMMAND, "lab", "serve", request.param, "--context", "16384", "--announce"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(folder),
        text=True,
    ) as process:
        assert process.stdout is not None
        yield request.param, json.loads(process.stdout.readline())
        process.communicate(timeout=GUARD_SECONDS)
    assert process.returncode == 0


def test_a_server_by_its_url(served: tuple[str, dict[str, object]], tmp_path: Path) -> None:
    name, said = served
    model = str(said["model"])
    ended, record = checked(tmp_path, f"{said['url']}/v1", "--model", model, "--context", "16384")
    assert ended.code == (0 if name == "healthy" else 1), ended.said
    assert record.info.target == f"{said['url']}/v1"
    assert record.facts
    assert [w.role for w in record.facts.workers] == ["prefill", "decode"]
    if name == "healthy":
        assert record.findings == ()


def test_the_only_model_and_its_context_are_found(
    served: tuple[str, dict[str, object]], tmp_path: Path
) -> None:
    name, said = served
    ended, record = checked(tmp_path, f"{said['url']}/v1")
    assert ended.code == (0 if name == "healthy" else 1), ended.said
    assert record.info.model == said["model"]
    assert record.facts
    assert record.facts.context_tokens == 16_384


# the wheel


@pytest.mark.slow
def test_a_wheel_installed_elsewhere_runs_with_its_own_data(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    wheels, installed, elsewhere = (
        tmp_path / "wheels",
        tmp_path / "installed",
        tmp_path / "elsewhere",
    )
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(wheels),
            str(root),
        ],
        check=True,
        capture_output=True,
        timeout=GUARD_SECONDS,
    )
    (wheel,) = wheels.glob("kvcanary-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(installed), str(wheel)],
        check=True,
        capture_output=True,
        timeout=GUARD_SECONDS,
    )
    env = environment(tmp_path, {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"})
    asked = (
        "import kvcanary, kvcanary.data; print(kvcanary.__file__); "
        "print(*[kvcanary.data.data_path(f) for f in ('probes', 'suites', 'reports')], sep='\\n')"
    )
    places = subprocess.run(
        [sys.executable, "-c", asked],
        env=env,
        cwd=elsewhere,
        text=True,
        capture_output=True,
        check=True,
    ).stdout.splitlines()
    assert len(places) == 4
    assert all(Path(place).is_relative_to(installed) for place in places)
    assert {p.name for p in (installed / "kvcanary" / "_data" / "probes").iterdir()} == {
        p.name for p in (root / "probes").iterdir()
    }
    assert (installed / "kvcanary" / "py.typed").exists() is (
        root / "kvcanary" / "py.typed"
    ).exists()
    ended = subprocess.run(
        [*COMMAND, "check", "lab:healthy?context=4096", "--quiet"],
        env=env,
        cwd=elsewhere,
        text=True,
        capture_output=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "PASS" in ended.stdout
    assert list(elsewhere.iterdir()) == []

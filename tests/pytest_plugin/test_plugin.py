"""``pytest NAME.kvcanary.yaml`` as a person runs it: processes, sockets and labs, nothing replaced."""

import os
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest

from kvcanary.pytest_plugin.session import Session
from kvcanary.pytest_plugin.suite_file import SuiteFile, Violated
from kvcanary.record.journal import load
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import ClaimName
from kvcanary.verdict.judge import judge
from tests.builders import info, record
from tests.cli.command import GUARD_SECONDS
from tests.cli.parrot import serving

pytest_plugins = ["pytester"]

SECRET = "ANSWERTEXT-of-somebody-else"
KEY = "sk-KEY-0123456789"
SICK = "lab:glm-5.3?context=4096"
SMALL = "lab:healthy?context=2048"
SUITE = """\
id: mine
title: Ours
probes: [PROBES]
requires: [ownership]
"""
INSTALLED = any(e.name == "kvcanary" for e in entry_points(group="pytest11"))
LOADED = [] if INSTALLED else ["-p", "kvcanary.pytest_plugin"]
"""What an environment needs whose installation of kvcanary is older than the plugin."""


@pytest.fixture(autouse=True)
def state(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder and a site key of the test's own."""
    for name in os.environ:
        if name.startswith("KVCANARY_") or name in ("CI", "PYTEST_ADDOPTS"):
            monkeypatch.delenv(name)
    folder = pytester.path / "state"
    monkeypatch.setenv("KVCANARY_STATE_DIR", str(folder))
    monkeypatch.setenv("KVCANARY_SITE_KEY_FILE", str(pytester.path / "site.key"))
    monkeypatch.setenv("KVCANARY_API_KEY", KEY)
    return folder


def suite(pytester: pytest.Pytester, probes: str = "short", name: str = "gate") -> Path:
    path = pytester.path / f"{name}.kvcanary.yaml"
    path.write_text(SUITE.replace("PROBES", probes))
    return path


def ran(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*LOADED, "-W", "error", *words, timeout=GUARD_SECONDS)


def records(state: Path) -> list[RunRecord]:
    return [load(path) for path in sorted((state / "runs").glob("*.jsonl"))]


def test_each_probe_and_claim_is_an_item_and_one_run_serves_the_workers_of_xdist(
    pytester: pytest.Pytester, state: Path
) -> None:
    suite(pytester, "oversize, ranks")
    result = ran(
        pytester,
        "-n",
        "2",
        "--kvcanary-target",
        SICK,
        "-vv",
        "--showlocals",
        "-rA",
        "--junitxml=j.xml",
    )
    result.assert_outcomes(failed=6, skipped=1)
    (found,) = records(state)
    (path,) = (state / "runs").iterdir()
    said = result.stdout.str()
    for finding in found.findings:
        assert finding.title in said
    result.stdout.fnmatch_lines(
        [
            "*claim[[]isolation[]]*",
            "claim isolation: *hold text of other requests",
            "F1 leak  *",
            "   what to do: Isolate the deployment now*",
            f"   replay: kvcanary replay {path} F1",
        ]
    )
    result.stdout.fnmatch_lines(
        ["*= kvcanary =*", "gate.kvcanary.yaml: *hold text of other requests", f"  record  {path}"]
    )
    result.stdout.fnmatch_lines(["*probe ranks does not apply: it needs several-workers*"])
    for line in said.splitlines():
        assert not line.startswith(("E  ", ">  ", "self ", "record ")), line
    assert "hold text of other requests" in (pytester.path / "j.xml").read_text()
    assert not (state / "pytest").exists() or not list((state / "pytest").iterdir())


def test_a_healthy_deployment_is_green_and_k_sends_no_more_than_what_it_chose(
    pytester: pytest.Pytester, state: Path
) -> None:
    suite(pytester, "oversize, short")
    pytester.makeini(f"[pytest]\nkvcanary_target = {SMALL}\nkvcanary_args = --tokens 40000\n")
    result = ran(pytester, "-k", "short", "-rA", "--showlocals")
    result.assert_outcomes(passed=1, deselected=6)
    result.stdout.fnmatch_lines(
        ["*kept their labels*", "PASSED gate.kvcanary.yaml::probe[[]short[]]"]
    )
    (found,) = records(state)
    assert found.info.probes == ("short",)
    assert found.info.budget_tokens == 40_000


def test_the_fixture_runs_a_suite_and_returns_its_record(
    pytester: pytest.Pytester, state: Path
) -> None:
    with serving(200, SECRET) as parrot:
        pytester.makepyfile(
            dedent(f"""
            import pytest
            from kvcanary.errors import KvcanaryError

            def test_not_owned(kvcanary_run):
                record = kvcanary_run({parrot.url!r}, suite="smoke", options=["--context", "2048"])
                assert record.info.suite == "smoke"
                assert record.verdict.exit_code == 0

            def test_wrong_option(kvcanary_run):
                with pytest.raises(KvcanaryError, match="No such option.*--tokenz"):
                    kvcanary_run({parrot.url!r}, options=["--tokenz", "4"])

            def test_told_without_frames(kvcanary_run):
                kvcanary_run()
            """)
        )
        result = ran(pytester, "--showlocals", "--tb=long", "--kvcanary-args=--no-stream")
    result.assert_outcomes(passed=1, failed=2)
    assert len(records(state)) == 1
    result.stdout.fnmatch_lines(
        ["E *assert <ExitCode.INCONCLUSIVE: 3> == 0", "E *KvcanaryError: no target was given: *"]
    )
    assert "session.py" not in result.stdout.str()
    assert SECRET not in result.stdout.str()


@pytest.mark.parametrize(
    ("words", "outcomes"),
    [
        (("--showlocals", "--tb=long", "-vv"), {"errors": 2, "skipped": 4}),
        (("--kvcanary-inconclusive=xfail",), {"xfailed": 2, "skipped": 4}),
    ],
)
def test_what_was_not_measured_is_never_green_unless_asked_for(
    pytester: pytest.Pytester, words: tuple[str, ...], outcomes: dict[str, int]
) -> None:
    suite(pytester)
    with serving(200, SECRET) as parrot:
        result = ran(
            pytester, "--kvcanary-target", parrot.url, "--kvcanary-args", "--context 2048 --no-stream",
            "-rA", "--junitxml=j.xml", *words,
        )  # fmt: skip
    result.assert_outcomes(**outcomes)
    assert result.ret == (0 if "xfailed" in outcomes else 1)
    result.stdout.fnmatch_lines(["*inconclusive: claim ownership: *"])
    for text in (result.stdout.str(), result.stderr.str(), (pytester.path / "j.xml").read_text()):
        assert SECRET not in text
        assert KEY not in text


def test_what_was_not_measured_is_no_pass_where_nothing_is_expected_to_fail(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytester.parseconfig(*LOADED)
    session = pytest.Session.from_config(config)
    runs = Session("x", None, (), lenient=True)
    file = SuiteFile.from_parent(session, path=suite(pytester), runs=runs)
    unfinished = record(info=info(requires=(ClaimName.OWNERSHIP,)))
    file.record = unfinished.model_copy(
        update={"verdict": judge(unfinished, unfinished.info.requires).verdict}
    )
    item = next(i for i in file.collect() if i.name == "claim[ownership]")
    item.setup()
    with pytest.raises(pytest.xfail.Exception):
        item.runtest()
    monkeypatch.setattr(pytest, "xfail", lambda *_: None)  # what --runxfail makes of it
    with pytest.raises(Violated, match="inconclusive: claim ownership"):
        item.runtest()


def test_collecting_asks_nobody(pytester: pytest.Pytester, state: Path) -> None:
    suite(pytester, "contract, ./own.yaml")
    own = "id: own\ntitle: x\nmechanism: [slot-reuse]\nwhy: x\nblind_to: x\nsteps: []\n"
    (pytester.path / "own.yaml").write_text(own)
    result = ran(pytester, "--collect-only", "-q", "--kvcanary-target", "http://127.0.0.1:9/v1")
    result.stdout.fnmatch_lines(
        [
            "gate.kvcanary.yaml::probe[[]contract[]]",
            "gate.kvcanary.yaml::probe[[]own[]]",
            "gate.kvcanary.yaml::claim[[]ownership[]]",
            "gate.kvcanary.yaml::claim[[]accounting[]]",
            "7 tests collected*",
        ]
    )
    assert not state.exists()


def test_a_wrong_suite_is_told_by_its_place_and_not_by_ours(pytester: pytest.Pytester) -> None:
    for number, text in enumerate(("probes: [shrt]\n", "probs: [short]\n", "probes: [short\n")):
        path = suite(pytester, name=f"gate{number}")
        path.write_text(SUITE.replace("probes: [PROBES]\n", text))
    result = ran(pytester, "--full-trace", "--showlocals")
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        [
            "There is no probe `shrt`; did you mean `short`?*",
            "gate1.kvcanary.yaml:3:1: probs: there is no such key; did you mean `probes`?*",
            "gate2.kvcanary.yaml:4:*: not valid YAML: *",
        ]
    )
    assert "suite_file.py" not in result.stdout.str()
    assert "grammar.py" not in result.stdout.str()


def test_what_cannot_be_run_is_an_error_and_says_why(
    pytester: pytest.Pytester, unused_port: int
) -> None:
    suite(pytester)
    result = ran(
        pytester, "--kvcanary-target", f"http://127.0.0.1:{unused_port}/v1", "--showlocals"
    )
    result.assert_outcomes(errors=6)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["kvcanary could not run: *refused*"])
    assert "session.py" not in result.stdout.str()


def test_an_interrupt_ends_the_run_and_leaves_its_record(
    pytester: pytest.Pytester, state: Path
) -> None:
    suite(pytester)
    with (
        serving(0, "") as parrot,
        subprocess.Popen(
            [sys.executable, "-m", "pytest", *LOADED, "--kvcanary-target", parrot.url],
            stdout=subprocess.DEVNULL,
            # not ignored, whatever shell runs these tests
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        assert parrot.asked.wait(GUARD_SECONDS)
        process.send_signal(signal.SIGINT)  # to pytest alone, as from a supervisor
        assert process.wait(GUARD_SECONDS) == pytest.ExitCode.INTERRUPTED
    (partial,) = (state / "runs").iterdir()
    assert partial.name.endswith(".jsonl.partial")
    assert load(partial).stopped == "interrupted"


def test_a_pytest_without_such_files_imports_next_to_nothing_of_kvcanary(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_little():
            ours = {m for m in sys.modules if m.split(".")[0] in ("kvcanary", "pydantic", "httpx")}
            assert ours == {"kvcanary", "kvcanary.pytest_plugin"}
        """
    )
    ran(pytester).assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kvcanary": "kvcanary.pytest_plugin"}

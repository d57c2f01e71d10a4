"""The gates in ``deploy/`` and ``action.yml``: held against the platforms' schemas, and run as they stand."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from kvcanary.record.journal import load
from tests.cli.command import COMMAND, GUARD_SECONDS, environment
from tests.cli.parrot import serving
from tests.instrument.served_lab import served

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ACTION = ROOT / "action.yml"
GITLAB = DEPLOY / "gitlab/kvcanary.gitlab-ci.yml"
ANALYSIS = DEPLOY / "argo-rollouts/analysis-template.yaml"
CONTAINERFILE = DEPLOY / "Containerfile"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KEY = "sk-KEY-0123456789"
SITE_KEY = "ab" * 32
SUITE = "id: gate\ntitle: The figures\nprobes: [contract]\nrequires: [capacity]\n"
"""A few short prompts, and the pools."""


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def job_of(path: Path) -> Any:
    """The Job that a manifest holds, wherever in it."""
    (found,) = (d for d in documents(path) if d["kind"] in ("Job", "CronJob", "AnalysisTemplate"))
    if found["kind"] == "CronJob":
        return found["spec"]["jobTemplate"]["spec"]
    if found["kind"] == "AnalysisTemplate":
        return found["spec"]["metrics"][0]["provider"]["job"]["spec"]
    return found["spec"]


JOBS = {path.stem: path for path in (*KUBERNETES, ANALYSIS) if path.stem != "config"}


# by the platforms' own rules


@pytest.mark.parametrize(
    "command",
    [
        ("check-jsonschema", "--builtin-schema", "vendor.github-actions", str(ACTION)),
        (
            "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci",
            "--data-transform", "gitlab-ci", str(GITLAB),
        ),
        ("zizmor", "--offline", "--no-progress", "--persona", "pedantic", str(ACTION)),
        ("hadolint", "--failure-threshold", "style", str(CONTAINERFILE)),
    ],
    ids=["action", "gitlab", "zizmor", "container"],
)  # fmt: skip
def test_a_linter_has_nothing_to_say(command: tuple[str, ...]) -> None:
    program = Path(sys.executable).parent / command[0]
    ended = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.stem)
def test_manifests_are_what_kubernetes_takes(path: Path) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_the_analysis_is_what_argo_rollouts_takes() -> None:
    (template,) = documents(ANALYSIS)
    schema = json.loads((Path(__file__).parent / "analysis-template.schema.json").read_text())
    jsonschema.validate(template, schema)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": job_of(ANALYSIS),
    }
    kubernetes_validate.validate(job, "1.31", strict=True)


def test_the_action_puts_no_input_into_a_script_and_pins_what_it_uses() -> None:
    (action,) = documents(ACTION)
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step)
        assert "uses" not in step or re.fullmatch(r"[a-z/-]+@[0-9a-f]{40}", step["uses"])
    assert action["runs"]["steps"][-1]["if"] == "always() && steps.check.outputs.reports"


@pytest.mark.parametrize("name", JOBS)
def test_a_pod_may_do_nothing_that_it_need_not(name: str) -> None:
    job = job_of(JOBS[name])
    assert job["backoffLimit"] == 0
    assert job["activeDeadlineSeconds"]
    assert job["ttlSecondsAfterFinished"]
    fail, ignore = job["podFailurePolicy"]["rules"]
    assert (fail["action"], fail["onExitCodes"]["values"]) == ("FailJob", [1])
    assert (ignore["action"], ignore["onPodConditions"][0]["type"]) == (
        "Ignore",
        "DisruptionTarget",
    )
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]) == {"requests", "limits"}
    assert not [entry["name"] for entry in container["env"] if "API_KEY" in entry["name"]]


def test_cron_jobs_keep_out_of_each_others_way() -> None:
    (cron,) = (d["spec"] for d in documents(DEPLOY / "kubernetes/cronjob.yaml"))
    assert cron["concurrencyPolicy"] == "Forbid"
    assert cron["startingDeadlineSeconds"]
    assert cron["schedule"].split()[0] not in ("0", "*", "30")


# as they are run


@dataclass(frozen=True)
class Labs:
    """Base URLs, and the exit code that the suite ends with there."""

    healthy: str
    short: str


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    folder = tmp_path_factory.mktemp("labs")
    with (
        served(folder, "healthy", "--context", "4096") as healthy,
        served(folder, "glm-5.3-patched", "--context", "4096") as short,
    ):
        yield Labs(healthy, short)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the image holds, made by its own lines; what kvcanary needs is already here."""
    folder = tmp_path_factory.mktemp("image")
    lines = CONTAINERFILE.read_text().replace("\\\n", "").split("\nFROM ")[1].splitlines()
    source = folder / "src"
    source.mkdir()
    for words in (line.split()[1:] for line in lines if line.startswith("COPY ")):
        for name in words[:-1]:
            to = source if words[-1] == "./" else source / words[-1]
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, to)
    (run,) = (line.removeprefix("RUN ") for line in lines if line.startswith("RUN "))
    script = run.replace("/opt/kvcanary", str(folder / "kvcanary")).replace(
        "/state", str(folder / "s")
    )
    here = Path(yaml.__file__).parents[1]
    subprocess.run(
        ["/bin/sh", "-ec", script],
        cwd=source,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(here),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's own way to say that there is none
        },
        check=True,
        timeout=2 * GUARD_SECONDS,  # pip on a busy machine
    )
    return folder / "kvcanary"


def installed_environment(folder: Path, installed: Path) -> dict[str, str]:
    """That of a person whose kvcanary is the installed one."""
    return {
        **environment(folder),
        "PATH": f"{installed / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": str(Path(yaml.__file__).parents[1]),
    }


def test_the_image_runs_what_is_installed_in_it(installed: Path, tmp_path: Path) -> None:
    last = CONTAINERFILE.read_text().split("\nFROM ")[-1]
    entry, arguments = (
        json.loads(re.search(rf"^{word} (.*)$", last, re.MULTILINE)[1])  # type: ignore[index]
        for word in ("ENTRYPOINT", "CMD")
    )
    assert re.search(r"^USER 65532:65532$", last, re.MULTILINE)
    for words, code in ((arguments, 0), (["suites", "predeploy"], 0), (["check", "lab:x"], 2)):
        ended = subprocess.run(
            [installed / "bin" / entry[0], *words],
            cwd=tmp_path,
            env=installed_environment(tmp_path, installed),
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr


def script(
    text: str, folder: Path, installed: Path, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """A script as a runner's bash runs it."""
    return subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=folder,
        env={**installed_environment(folder, installed), **variables},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_action_ends_as_the_run_does_and_leaves_its_reports(
    code: int, labs: Labs, installed: Path, tmp_path: Path
) -> None:
    (action,) = documents(ACTION)
    (step,) = (s for s in action["runs"]["steps"] if s.get("id") == "check")
    (tmp_path / "gate.yaml").write_text(SUITE)
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner/kvcanary").symlink_to(installed)
    given = {
        "target": (labs.healthy, labs.short, "no-such-file")[code],
        "suite": "./gate.yaml",
        "api-key": KEY,
        "args": "--contact\n  oncall@example.com --concurrency 2\n",
    }
    inputs = {
        name: given.get(name, entry.get("default")) for name, entry in action["inputs"].items()
    }
    named = {name: value.split("inputs.")[1].split()[0] for name, value in step["env"].items()}
    ended = script(
        step["run"],
        tmp_path,
        installed,
        {name: inputs[name_] for name, name_ in named.items()}
        | {
            "RUNNER_TEMP": str(tmp_path / "runner"),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        },
    )
    assert ended.returncode == code, ended.stderr
    said = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert said["exit-code"] == str(code)
    assert said.keys() == {
        value["value"].split("outputs.")[1].split()[0] for value in action["outputs"].values()
    }
    left = {path.name for path in Path(said["reports"]).iterdir()}
    if code == 2:
        assert not left
        return
    assert left == {"record.jsonl", "junit.xml", "kvcanary.sarif", "kvcanary.md", "kvcanary.html"}
    record = load(Path(said["reports"]) / "record.jsonl")
    assert (record.info.suite, record.info.contact) == ("gate", "oncall@example.com")
    assert ("::error" in ended.stderr) == (code == 1)
    assert (tmp_path / "summary").read_text()
    assert KEY not in ended.stdout + ended.stderr


def test_the_gitlab_job_ends_as_the_run_does_and_leaves_its_reports(
    labs: Labs, installed: Path, tmp_path: Path
) -> None:
    (found,) = documents(GITLAB)
    job = found["kvcanary"]
    (tmp_path / "gate.yaml").write_text(SUITE)
    variables = {
        **job["variables"], "KVCANARY_TARGET": labs.short, "KVCANARY_SUITE": "./gate.yaml",
        "KVCANARY_API_KEY": KEY,
    }  # fmt: skip
    ended = script("\n".join(job["script"]), tmp_path, installed, variables)
    assert ended.returncode == 1, ended.stderr
    assert job["artifacts"]["when"] == "always"
    assert (tmp_path / job["artifacts"]["reports"]["junit"]).read_text().count("<failure") == 1
    (kept,) = job["artifacts"]["paths"]
    assert {p.name for p in (tmp_path / kept).iterdir()} == {
        "record.jsonl",
        "junit.xml",
        "kvcanary.md",
    }


@dataclass(frozen=True)
class Pod:
    """What a pod left."""

    code: int
    said: str
    log: str


def run_pod(name: str, folder: Path, target: str, suite: str) -> Pod:
    """A Job's container as the kubelet starts it, with its mounts in ``folder``."""
    (config,) = (
        d["data"] for d in documents(DEPLOY / "kubernetes/config.yaml") if d["kind"] == "ConfigMap"
    )
    (container,) = job_of(JOBS[name])["template"]["spec"]["containers"]
    places = {m["mountPath"]: folder / m["name"] for m in container["volumeMounts"]}
    log = folder / "termination-log"

    def here(text: str) -> str:
        for mount, place in places.items():
            text = text.replace(mount, str(place))
        text = text.replace("/dev/termination-log", str(log))
        return text.replace("{{args.target}}", target).replace("{{args.suite}}", suite)

    for place in places.values():
        place.mkdir()
    for file, text in config.items():
        (folder / "config" / file).write_text(here(text))
    for file, text in (("api-key", KEY), ("site-key", SITE_KEY)):
        (folder / "secret" / file).write_text(text)
        (folder / "secret" / file).chmod(0o400)
    given = {entry["name"]: here(entry["value"]) for entry in container["env"]}
    given |= {"KVCANARY_TARGET": target, "KVCANARY_SUITE": suite}
    words = [
        re.sub(r"\$\((\w+)\)", lambda m: given[m[1]], here(word)) for word in container["args"]
    ]
    ended = subprocess.run(
        [*COMMAND, *words],
        cwd=folder / "state",
        env={**environment(folder), **given},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    return Pod(
        ended.returncode, ended.stdout + ended.stderr, log.read_text() if log.exists() else ""
    )


def test_the_job_fails_with_the_verdict_and_says_why_in_a_line(labs: Labs, tmp_path: Path) -> None:
    suite = tmp_path / "gate.yaml"
    suite.write_text(SUITE)
    pod = run_pod("job", tmp_path, labs.short, str(suite))
    assert pod.code == 1, pod.said
    assert pod.log.startswith("kvcanary fail (exit code 1): ")
    assert "capacity/pool-below-context" in pod.log
    assert pod.log.count("\n") == 1
    assert len(list((tmp_path / "state/runs").glob("*.jsonl"))) == 1


def test_the_analysis_succeeds_where_the_run_passes(labs: Labs, tmp_path: Path) -> None:
    suite = tmp_path / "gate.yaml"
    suite.write_text(SUITE)
    pod = run_pod("analysis-template", tmp_path, labs.healthy, str(suite))
    assert pod.code == 0, pod.said
    assert pod.log.startswith("kvcanary pass (exit code 0): ")


def test_the_cron_job_is_no_pass_where_nothing_was_shown_and_sends_the_mounted_key(
    tmp_path: Path,
) -> None:
    with serving(200, "whatever") as parrot:
        pod = run_pod("cronjob", tmp_path, parrot.url, "production")
    assert pod.code == 3, pod.said
    assert pod.log.startswith("kvcanary inconclusive (exit code 3): ")
    assert set(parrot.keys) == {f"Bearer {KEY}"}
    assert KEY not in pod.said + pod.log


def test_where_nothing_could_run_the_last_printed_line_says_why(
    tmp_path: Path, unused_port: int
) -> None:
    pod = run_pod("job", tmp_path, f"http://127.0.0.1:{unused_port}/v1", "predeploy")
    assert (pod.code, pod.log) == (2, "")
    assert pod.said.splitlines()[-1].startswith("Error: ")

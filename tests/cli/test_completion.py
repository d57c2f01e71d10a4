"""What a shell completes, and the names that can be explained."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kvcanary.cli.completion import COMPLETE_VARIABLE, SHELLS, completion
from kvcanary.cli.explain import explain, explanations

RUN = "from kvcanary.cli import cli; cli(prog_name='kvcanary')"


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    asked = {
        COMPLETE_VARIABLE: "bash_complete",
        "COMP_WORDS": " ".join(["kvcanary", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_asks_the_command_itself(shell: str) -> None:
    done = CliRunner().invoke(completion, [shell], standalone_mode=False)
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in done.output


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("che",), "check"),
        (("check", "--suite", "pre"), "predeploy"),
        (("check", "--probe", "over"), "oversize"),
        (("check", "lab:glm"), "lab:glm-5.3"),
        (("explain", "isolation/foreign-t"), "isolation/foreign-text"),
        (("check", "--noti"), "--notify"),
    ],
)
def test_names_are_completed(words: tuple[str, ...], offered: str) -> None:
    assert offered in completed(*words)


KNOWN = ("first-token", "predeploy", "oversize", "ownership", "exit 3", "slot-reuse", "known-pool")


@pytest.mark.parametrize("name", KNOWN)
def test_all_kinds_of_names_are_explained(name: str) -> None:
    done = CliRunner().invoke(explain, [name], standalone_mode=False)
    assert name in done.output
    assert len(done.output) > 40


def test_a_detector_tells_what_it_finds_and_not_what_to_do() -> None:
    known = explanations()
    families = {rule.partition("/")[0] for rule in known if "/" in rule}
    assert families <= set(known)
    assert "**first-token/too-early**: " in known["first-token"]
    assert "What to do" not in known["first-token"]


def test_a_name_that_stands_for_two_things_is_explained_as_both() -> None:
    soak = explanations()["soak"]
    assert "A suite." in soak
    assert "**Looks for:**" in soak
    assert "**soak/slower**" in soak

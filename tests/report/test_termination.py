"""The line for Kubernetes' termination log."""

import pytest

from kvcanary.report import termination
from tests.builders import record
from tests.report import scenes


def test_it_says_verdict_exit_code_claims_and_rules() -> None:
    line = termination.render(scenes.failing())
    assert line.startswith("kvcanary fail (exit code 1): ")
    assert "; fail: isolation, capacity" in line
    assert "leak [isolation/foreign-text] " in line


def test_a_run_without_a_verdict_passes_nowhere() -> None:
    assert termination.render(record()) == "kvcanary unfinished: the run was cut off\n"


@pytest.mark.parametrize("text", [scenes.HOSTILE, "\N{SNOWMAN}" * 9_000, "\ud800", "a\nb"])
def test_it_is_one_line_that_kubernetes_keeps_whole(text: str) -> None:
    run = scenes.failing()
    findings = tuple(f.model_copy(update={"title": text}) for f in run.findings)
    line = termination.render(run.model_copy(update={"findings": findings}))
    assert len(line.encode()) <= termination.MAX_BYTES
    assert line.endswith("\n")
    assert line[:-1].isprintable()

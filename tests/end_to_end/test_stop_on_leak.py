"""A suite may end at the first leak; others finish."""

import asyncio
from pathlib import Path

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.lab import Lab, scenario_named
from kvcanary.probing.endpoint import Endpoint
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from kvcanary.verdict.claims import ExitCode

CONTEXT = 8_192


async def _check(folder: Path, stop: bool) -> RunRecord:
    suite = folder / "suite.yaml"
    suite.write_text(
        "id: mine\ntitle: Mine\nprobes: [oversize]\nrequires: [ownership]\n"
        f"stop_when_proven: {str(stop).lower()}\n"
    )
    async with Lab(scenario_named("glm-5.3").scaled(context_tokens=CONTEXT)) as lab:
        options = Options(
            suite=str(suite),
            record=folder / f"{stop}.jsonl",
            site_key=SiteKey(bytes(range(32))),
        )
        endpoint = Endpoint(f"{lab.url}/v1", lab.model_name)
        return (await run_check(Target("lab:glm-5.3", endpoint, CONTEXT), options)).record


def test_it_ends_after_the_stage_that_leaked_and_is_a_violation(tmp_path: Path) -> None:
    stopped = asyncio.run(_check(tmp_path, stop=True))
    whole = asyncio.run(_check(tmp_path, stop=False))
    assert stopped.stopped
    assert "was proven" in stopped.stopped
    assert "control" not in {e.group for e in stopped.exchanges}
    assert "control" in {e.group for e in whole.exchanges}
    for record in (stopped, whole):
        assert record.verdict
        assert record.verdict.exit_code is ExitCode.VIOLATION

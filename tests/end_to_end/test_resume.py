"""A run that was cut off goes on from its partial record."""

import asyncio
from dataclasses import replace
from pathlib import Path

from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.lab import Lab, scenario_named
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.events import Silence
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.journal import PARTIAL, load
from kvcanary.run import Options, run_check
from kvcanary.verdict.claims import ExitCode

CONTEXT = 8_192
SITE_KEY = SiteKey(bytes(range(32)))


class CutOff(Silence):
    """Cancels the run after the first reader."""

    def __init__(self, purpose: Purpose) -> None:
        self.task: asyncio.Task[object] | None = None
        self._purpose = purpose

    def exchanged(self, exchange: Exchange) -> None:
        if exchange.purpose is self._purpose and self.task:
            self.task.cancel()


async def _cut_off_and_resumed(scenario: str, folder: Path) -> None:
    async with Lab(scenario_named(scenario).scaled(context_tokens=CONTEXT)) as lab:
        target = Target(scenario, Endpoint(f"{lab.url}/v1", lab.model_name), CONTEXT)
        options = Options(
            record=folder / "first.jsonl",
            site_key=SITE_KEY,
        )
        listener = CutOff(Purpose.READER)
        listener.task = asyncio.create_task(run_check(target, options, listener))
        await asyncio.wait([listener.task])
        assert listener.task.cancelled()

        earlier = load(folder / f"first.jsonl{PARTIAL}")
        assert earlier.stopped == "interrupted"
        assert earlier.verdict is None
        identity = RunIdentity(earlier.info.run, bytes.fromhex(earlier.info.nonce))
        again = replace(options, record=folder / "second.jsonl", identity=identity, resume=earlier)
        resumed = (await run_check(target, again)).record

    done = {e.number for e in earlier.exchanges}
    numbers = [e.number for e in resumed.exchanges if e.purpose is not Purpose.CALIBRATION]
    assert done <= {e.number for e in resumed.exchanges}
    assert len(numbers) == len(set(numbers)), "nothing is sent twice under one number"
    assert resumed.verdict
    assert resumed.stopped is None
    expected = ExitCode.PASS if scenario == "healthy" else ExitCode.VIOLATION
    assert resumed.verdict.exit_code is expected


def test_a_cut_off_healthy_run_goes_on_to_a_pass(tmp_path: Path) -> None:
    asyncio.run(_cut_off_and_resumed("healthy", tmp_path))


def test_a_cut_off_sick_run_goes_on_to_its_violation(tmp_path: Path) -> None:
    asyncio.run(_cut_off_and_resumed("glm-5.3", tmp_path))

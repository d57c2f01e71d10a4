"""A run that was cut off goes on from its partial record."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.errors import UsageError
from kvcanary.lab import Lab, scenario_named
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.events import Silence
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.journal import PARTIAL, load
from kvcanary.run import Options, _same_run, run_check
from kvcanary.verdict.claims import ExitCode
from tests.builders import info

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
    assert [series.worker for series in resumed.series] == ["P1", "D1"] * 2
    assert resumed.series[:2] == earlier.series
    assert resumed.verdict
    assert resumed.stopped is None
    expected = ExitCode.PASS if scenario == "healthy" else ExitCode.VIOLATION
    assert resumed.verdict.exit_code is expected


def test_a_cut_off_healthy_run_goes_on_to_a_pass(tmp_path: Path) -> None:
    asyncio.run(_cut_off_and_resumed("healthy", tmp_path))


def test_a_cut_off_sick_run_goes_on_to_its_violation(tmp_path: Path) -> None:
    asyncio.run(_cut_off_and_resumed("glm-5.3", tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("target", "http://elsewhere/v1", "target"),
        ("model", "another", "model"),
        ("suite", "smoke", "suite"),
        ("probes", ("short",), "probes short"),
        ("api", "completions", "--api"),
        ("stream", False, "--stream"),
        ("context_tokens", 4_096, "--context"),
        ("concurrency", 9, "--concurrency"),
        ("deadline_seconds", 9.0, "--deadline"),
        ("budget_tokens", 9, "--tokens"),
        ("budget_seconds", 9.0, "--minutes"),
        ("tokens_per_minute", 9, "--tpm"),
        ("contact", "somebody", "--contact"),
        ("tenants", ("one",), "tenants"),
        ("requires", ("capacity",), "required claims capacity, not none"),
        ("bound", 0.5, "bound"),
        ("grammar", "0123456789ab", "have been edited"),
    ],
)
def test_two_parts_that_differ_are_no_run(field: str, value: object, said: str) -> None:
    now = info(probes=("oversize",), grammar="ba9876543210")
    _same_run(now, now)
    with pytest.raises(UsageError, match=said):
        _same_run(now.model_copy(update={field: value}), now)

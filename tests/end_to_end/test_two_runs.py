"""Two runs, one leaking deployment: the second meets the first one's text, and says whose and how old."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kvcanary.canary.prompt import RunIdentity
from kvcanary.canary.run_number import new_run_number
from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.errors import UsageError
from kvcanary.probing.endpoint import Endpoint
from kvcanary.record.run import RunRecord
from kvcanary.run import run_check
from tests.cli.command import kvcanary
from tests.instrument.lab_runs import Setup

FIRST = Setup("glm-5.3", ("copy-error=0",), suite="check")


async def _both(folder: Path) -> tuple[RunRecord, RunRecord]:
    async with FIRST.lab() as lab:
        url = Endpoint(f"{lab.url}/v1", lab.model_name)
        target = Target("lab", url, context_tokens=FIRST.context)
        hour_ago = RunIdentity(new_run_number(1_790_000_000.0 - 7_300), b"an older one")
        options = FIRST.options(folder / "first.jsonl")
        first = (await run_check(target, replace(options, identity=hour_ago))).record
        # without victims of its own: what it meets is what the first run has left
        again = replace(
            FIRST.options(folder / "second.jsonl"),
            suite="production",
            probes=("long",),  # the matrix would write over what the first run has left
            identity=RunIdentity(new_run_number(1_790_000_000.0), b"a newer one"),
            known=(first,),
        )
        return first, (await run_check(target, again)).record


def test_the_second_run_recognises_the_first_one_s_text(tmp_path: Path) -> None:
    first, second = asyncio.run(_both(tmp_path))
    assert second.info.known == (first.info.run,)
    older = [t for e in second.exchanges for t in e.foreign if t.run == first.info.run]
    assert older, "stale pages held the first run's text"
    assert {t.request for t in older} <= {e.number for e in first.exchanges} | {
        e.number + 1 for e in first.exchanges
    }
    told = [line for f in second.findings for line in f.evidence if f"{first.info.run:07x}" in line]
    assert any(" before, request " in line for line in told)


def test_another_site_s_record_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with FIRST.lab() as lab:
            target = Target("lab", Endpoint(f"{lab.url}/v1", lab.model_name), context_tokens=4_096)
            options = replace(FIRST.options(tmp_path / "a.jsonl"), only_plan=True)
            other = replace(options, site_key=SiteKey(bytes(32)))
            record = (await run_check(target, other)).record
            with pytest.raises(UsageError, match="another site key"):
                await run_check(target, replace(options, known=(record,)))

    asyncio.run(run())


def test_what_is_no_record_is_said(tmp_path: Path) -> None:
    path = tmp_path / "no.jsonl"
    path.write_text("{}\n{}\n")
    ended = kvcanary(tmp_path, "check", "http://127.0.0.1:9/v1", "--known", str(path))
    assert ended.code == 2
    assert "not a line of a run record" in ended.said

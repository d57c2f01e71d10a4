"""Steps of a probe against the lab: prompts are really dropped, waits wait, neighbours run together."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcanary.lab import WallClock
from kvcanary.lab.prefill import PrefillRank
from kvcanary.probing import backoff, stages
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Endpoint, PlainText, Request
from kvcanary.probing.events import Silence
from kvcanary.record.exchange import Exchange, Purpose
from kvcanary.record.run import RunRecord
from kvcanary.verdict.claims import ExitCode, Status
from tests.instrument.lab_runs import Setup, finished, ran, run_in

HEAD = """\
id: mine
title: Mine
mechanism: [freed-too-early]
why: because
blind_to: much
output: 64
steps:
"""
CONTROL = """\
  - do: read
    group: before
    control: true
    tokens: 0.95 * reach / 4
"""
ABORTS = f"""{CONTROL}\
  - do: abort
    group: after
    tokens: reach / 4
    at: [0.25, 0.5, 0.75, first token]
    expect: answered
"""
TOGETHER = f"""{CONTROL}\
  - do: together
    steps:
      - do: read
        group: one
        tokens: reach / 4
      - do: read
        group: other
        tokens: reach / 3
  - do: wait
    seconds: 3600
    until: idle
"""


def suite(folder: Path, steps: str, more: str = "") -> str:
    """A suite of one probe with these steps."""
    (folder / "mine.yaml").write_text(HEAD + steps)
    path = folder / "suite.yaml"
    path.write_text(f"id: ours\ntitle: Ours\nprobes: [mine.yaml]\nrequires: [ownership]\n{more}")
    return str(path)


def slow() -> WallClock:
    """A lab whose prefill takes long enough to be dropped in the middle."""
    return WallClock(0.2)


def test_prompts_are_dropped_and_the_next_is_its_own(tmp_path: Path) -> None:
    run = ran(Setup(suite=suite(tmp_path, ABORTS), context=8_192), slow)
    dropped = run.sent(Purpose.DROPPED)[:4]  # a label that slipped is asked for behind a fifth
    assert [e.drop_at for e in dropped] == [0.25, 0.5, 0.75, "first token"]
    assert {e.outcome for e in dropped} <= {"aborted", "answered"}
    assert any(e.outcome == "aborted" and e.first_token_seconds is None for e in dropped)
    assert dropped[-1].outcome == "aborted"
    assert dropped[-1].first_token_seconds is not None, "dropped at its first token"
    assert run.code is ExitCode.PASS
    after = [e for e in run.sent(Purpose.READER) if e.group == "after"]
    assert [e.number - 1 for e in after] == [e.number for e in dropped], "each behind its own"
    for one, next_ in zip(dropped, after, strict=True):
        assert abs(one.length_tokens - next_.length_tokens) <= 2, "of the same length"


def late_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault at prefill: what a dropped prompt had still to write is written when its pages are
    somebody else's."""
    late: list[Any] = []
    release, count = PrefillRank._release, PrefillRank._count

    def released(self: PrefillRank, job: Any, *, computed_pages: int) -> None:
        if job.room.ended and computed_pages < len(job.table):
            late.append((job.table.copy(), job.ids, job.room.request.serial))
            computed_pages = 0
        release(self, job, computed_pages=computed_pages)

    def counted(self: PrefillRank, job: Any) -> None:
        count(self, job)
        for table, ids, serial in late:
            self.pool.write(table, 0, ids, serial)
        late.clear()

    monkeypatch.setattr(PrefillRank, "_release", released)
    monkeypatch.setattr(PrefillRank, "_count", counted)


def test_pages_that_are_freed_too_early_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_writes(monkeypatch)
    run = ran(Setup(suite=suite(tmp_path, ABORTS), context=8_192), slow)
    assert run.code is ExitCode.VIOLATION
    assert "isolation/foreign-text" in run.rules
    sent = {e.number: e for e in run.record.exchanges}
    owners = {
        sent[t.request].purpose
        for e in run.record.exchanges
        for t in e.foreign
        if t.request in sent
    }
    assert Purpose.DROPPED in owners, "whose text it is, is told"


def test_neighbours_run_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the wait that may take an hour ends when the pool is empty."""
    monkeypatch.setattr(stages, "POLL_SECONDS", 0.05)
    run = ran(Setup(suite=suite(tmp_path, TOGETHER), context=8_192))
    assert run.code is ExitCode.PASS
    one, other = (
        [e for e in run.sent(Purpose.READER) if e.group == group] for group in ("one", "other")
    )
    assert len(one) == len(other) == 3
    ended = min(e.started_at + e.total_seconds for e in one)
    assert min(e.started_at for e in other) < ended, "before the first of the others was over"


def test_without_streaming_the_probe_is_not_run_and_nothing_passes(tmp_path: Path) -> None:
    path = suite(tmp_path, CONTROL)
    probe = tmp_path / "mine.yaml"
    probe.write_text(probe.read_text().replace("steps:", "needs: [streaming]\nsteps:"))
    both = Path(path).read_text().replace("[mine.yaml]", "[mine.yaml, short]")
    Path(path).write_text(both)
    run = ran(Setup(suite=path, stream=False))
    assert run.code is ExitCode.INCONCLUSIVE
    assert "needs streaming" in run.claim("ownership").text
    assert run.claim("isolation").status is Status.INCONCLUSIVE


def test_what_a_step_expects_fails_when_it_is_not_so(tmp_path: Path) -> None:
    steps = CONTROL + "  - do: read\n    group: mine\n    tokens: reach / 2\n    expect: refused\n"
    run = ran(Setup(suite=suite(tmp_path, steps)))
    assert run.code is ExitCode.VIOLATION
    assert "refusal/missing" in run.rules


class WhenWaiting(Silence):
    """Does something when the run waits for room."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def note(self, text: str) -> None:
        if text.startswith("waiting for room"):
            self._then()


def test_it_waits_while_others_use_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else keeps a third of the pool; the run goes on when they are gone."""
    monkeypatch.setattr(backoff, "POLL_SECONDS", 0.05)
    setup = Setup(suite=suite(tmp_path, CONTROL.replace("control: true", "bystanders: 0"),
                              "pause_above: 0.2\n"))  # fmt: skip

    async def beside_another() -> tuple[RunRecord, int]:
        waited = 0
        async with setup.lab() as lab:
            endpoint = Endpoint(f"{lab.url}/v1", lab.model_name)
            begun, gone = asyncio.Event(), asyncio.Event()

            async def another(client: Client) -> None:
                request = Request(
                    "other", PlainText("stone " * 3_000), 900, "other", ignore_eos=True
                )
                while not gone.is_set():
                    await client.send(
                        request, deadline_seconds=60, on_first_token=begun.set, release=gone
                    )

            def room() -> None:
                nonlocal waited
                waited += not gone.is_set()
                gone.set()

            async with Client(endpoint) as client:
                busy = asyncio.create_task(another(client))
                await begun.wait()
                record = await run_in(lab, setup, WhenWaiting(room))
                gone.set()
                await busy
        return record, waited

    record, waited = finished(beside_another())
    assert waited == 1, "the others were still there, and were waited for"
    assert record.verdict
    sent: list[Exchange] = [e for e in record.exchanges if e.purpose is Purpose.READER]
    assert all(e.answered for e in sent)


def test_where_nobody_tells_the_pools_use_it_is_said_once(tmp_path: Path) -> None:
    path = suite(tmp_path, CONTROL, "pause_above: 0.2\n")
    run = ran(Setup(suite=path, front_door_only=True))
    assert run.record.plan
    said = [note for note in run.record.plan.skipped if "pool is in use" in note]
    assert len(said) == 1

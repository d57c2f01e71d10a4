"""A busy hour on a small deployment: something for every fault to go wrong with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvcanary.lab import Scenario, scenario_named
from kvcanary.lab.adapters import BASE, adapter_named
from kvcanary.lab.objections import objection_to
from kvcanary.lab.room import Aborted, End, Room
from tests.lab.stage import Stage, said
from tests.lab.talk import TOKENIZER, Paper, plain

CONTEXT = 1024
LONG, MIDDLE, SHORT = 900, 500, 200
PAGES = 256  # a prompt of whole pages
AMBER, COPPER, HONEY, GARDEN = "amber", "copper", "honey", "garden"


def small(**changes: Any) -> Scenario:
    """A healthy deployment that never miscopies."""
    healthy = scenario_named("healthy").scaled(context_tokens=CONTEXT)
    return replace(healthy, **{"copy_error_rate": 0.0, **changes})


async def busy(stage: Stage) -> list[tuple[str, End | None]]:
    """Requests of all sorts, one after another and together; what each of them got."""
    rooms: list[Room] = []
    scenario = stage.deployment.scenario
    ranks = len(stage.deployment.decode_workers[0].ranks)

    def send(text: str, **fields: Any) -> Room:
        rooms.append(stage.submit(f" {text}", f"r{len(rooms)}", **fields))
        return rooms[-1]

    # bad parameters, a bad grammar; the same text under two salts and two adapters
    send(plain(SHORT, 1), objection=objection_to({"temperature": -1}))
    send(plain(SHORT, 2), objection=objection_to({"regex": "("}))
    shared = Paper(AMBER, MIDDLE, 1).text("middle")
    for salt, name in (("one", "lora-a"), ("one", "lora-b"), ("two", "lora-b")):
        adapter = adapter_named(f"m:{name}", scenario.adapters, len(TOKENIZER.words))
        send(shared, salt=salt, adapter=adapter or BASE)
        await stage.clock.advance(5)
    # more than one rank can hold, and somebody who has nothing to do with it
    for seed in range(6):
        text = Paper(COPPER, LONG - 40 * seed, seed).text("opening")
        send(text, max_new_tokens=90, rank=0)
    send(plain(SHORT, 5), rank=1 if ranks > 1 else 0)
    await stage.clock.advance(9)
    # the first text again, twice
    for _ in range(2):
        send(shared, salt="one")
        await stage.clock.advance(5)
    # a client that leaves while its pages are on their way, and others that get them
    left = send(plain(MIDDLE, 7))
    await stage.clock.advance((MIDDLE + 100) / scenario.prefill_tokens_per_second)
    left.end(Aborted())
    for seed in range(3):
        send(Paper(HONEY, MIDDLE, seed).text("closing"), max_new_tokens=30)
    await stage.clock.advance(5)
    # answers that outgrow the pool of those that keep no room, and a batch of many
    for seed in range(2):
        text = Paper(GARDEN, 600, seed).text("opening")
        send(text, max_new_tokens=120, ignore_eos=True)
    await stage.clock.advance(5)
    for seed in range(4):
        text = Paper(GARDEN, SHORT, seed).text("middle")
        send(text, max_new_tokens=60, ignore_eos=True)
    await stage.clock.advance(5)
    # a prompt of whole pages, twice
    for _ in range(2):
        send(plain(PAGES, 3))
        await stage.clock.advance(5)
    # a backlog
    for seed in range(14):
        send(plain(LONG, 100 + seed), max_new_tokens=2)
    await stage.clock.advance(30)
    return [said(room) for room in rooms]


async def brief(stage: Stage) -> None:
    """A few requests, for two faults at a time."""
    text = Paper(AMBER, 300, 1).text("middle")
    stage.submit(text, "first", salt="one", max_new_tokens=3)
    await stage.clock.advance(1)
    stage.submit(plain(LONG, 1), "long", max_new_tokens=3)
    left = stage.submit(plain(200, 2), "left", objection=objection_to({"top_p": 7}))
    for seed in range(3):
        stage.submit(plain(500, seed), f"together {seed}", max_new_tokens=16, ignore_eos=True)
    await stage.clock.advance(0.16)
    left.end(Aborted())
    stage.submit(text, "again", salt="two", max_new_tokens=3)
    await stage.clock.advance(20)

"""Reservations, queues and releases, on a clock that only the test moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.lab import scenario_names, with_habit
from kvcanary.lab.room import Aborted, Finished, Refused, Room
from kvcanary.lab.scenario import WorkerShape
from tests.lab.stage import Stage, on_stage, said, stage
from tests.lab.talk import TOKENIZER, Paper, plain, run, sized

HEALTHY = sized("healthy")
BIG, SMALL = 3000, 300  # two of BIG fit decode's 7,936 tokens, three do not


def test_decode_reserves_whole_prompts_first_come_first_served() -> None:
    async def play(stage: Stage) -> None:
        rooms = [stage.submit(plain(BIG, seed)) for seed in range(3)]
        late = stage.submit(plain(SMALL))
        held = [room.decode_table is not None for room in (*rooms, late)]
        assert held == [True, True, False, False]
        assert stage.deployment.decode.queued_requests == 2
        await stage.clock.advance(10)
        assert all(isinstance(said(room)[1], Finished) for room in (*rooms, late))
        assert stage.holds_nothing()

    on_stage(HEALTHY, play)


def test_a_prompt_takes_its_time_and_a_token_its_step() -> None:
    async def play(stage: Stage) -> None:
        room = stage.submit(plain(2000), max_new_tokens=3)
        seconds = 2000 / HEALTHY.prefill_tokens_per_second
        await stage.clock.advance(seconds * 0.99)
        assert said(room) == ("", None)
        await stage.clock.advance(seconds * 0.02 + HEALTHY.decode_step_seconds * 3)
        assert isinstance(said(room)[1], Finished)

    on_stage(HEALTHY, play)


def test_what_can_never_fit_decode_is_refused_with_the_engines_words() -> None:
    async def play(stage: Stage) -> None:
        room = stage.submit(plain(3000))
        _, end = said(room)
        assert isinstance(end, Refused)
        assert end.refusal.by == "decode"
        assert end.refusal.message == (
            "Input length (3000 tokens) exceeds the maximum allowed length (1274 tokens). "
            "Use a shorter input or enable --allow-auto-truncate."
        )
        assert stage.holds_nothing()

    on_stage(replace(HEALTHY, decode=WorkerShape(1280)), play)


def test_output_that_does_not_fit_the_pool_is_clipped_silently() -> None:
    async def play(stage: Stage) -> None:
        room = stage.submit(plain(1200), max_new_tokens=500, ignore_eos=True)
        await stage.clock.advance(10)
        _, end = said(room)
        assert isinstance(end, Finished)
        assert (end.reason, end.usage.completion_tokens) == ("length", 1280 - 1 - 1200 - 1)
        assert stage.holds_nothing()

    on_stage(replace(HEALTHY, decode=WorkerShape(1280)), play)


def test_a_neighbour_that_takes_the_last_page_ends_an_answer_with_length() -> None:
    async def play(stage: Stage) -> None:
        rooms = [
            stage.submit(plain(630, seed), max_new_tokens=300, ignore_eos=True) for seed in (1, 2)
        ]
        await stage.clock.advance(10)
        ends = [said(room)[1] for room in rooms]
        assert all(isinstance(end, Finished) and end.reason == "length" for end in ends)
        assert stage.holds_nothing()

    tight = replace(HEALTHY, decode=WorkerShape(1280), reserved_decode_tokens=0)
    on_stage(tight, play)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99, 1.05])
@pytest.mark.parametrize("scenario", ["healthy", "glm-5.3", "glm-5.3-patched"])
def test_an_abort_at_any_time_gives_every_page_back(scenario: str, share: float) -> None:
    async def play(stage: Stage) -> None:
        first, second = stage.submit(plain(2000, 1)), stage.submit(plain(3500, 2))
        await stage.clock.advance(share * 2000 / HEALTHY.prefill_tokens_per_second)
        first.end(Aborted())
        second.end(Aborted())
        await stage.clock.advance(1)
        assert stage.holds_nothing()

    on_stage(sized(scenario), play)


def test_an_abort_in_decodes_queue_leaves_no_reservation_behind() -> None:
    async def play(stage: Stage) -> None:
        rooms = [stage.submit(plain(BIG, seed)) for seed in range(4)]
        rooms[2].end(Aborted())
        await stage.clock.advance(10)
        assert rooms[2].decode_table is None
        assert [type(said(room)[1]) for room in rooms] == [Finished, Finished, Aborted, Finished]
        assert stage.holds_nothing()

    on_stage(HEALTHY, play)


def test_an_abort_while_waiting_for_prefills_pages_lets_go_of_the_cached_ones() -> None:
    async def play(stage: Stage) -> None:
        prefill = stage.deployment.prefill
        first = stage.submit(plain(1990, 1), max_new_tokens=1)
        await stage.clock.advance(100)
        assert first.ended
        assert prefill.evictable_pages == 31
        stage.submit(plain(640, 2))
        await stage.clock.advance(640 / slow.prefill_tokens_per_second + 0.1)
        assert prefill.inflight_requests == 1
        third = stage.submit(plain(2600, 1))
        await stage.clock.advance(0.1)
        assert (prefill.running_requests, prefill.evictable_pages) == (1, 0)
        third.end(Aborted())
        await stage.clock.advance(100)
        assert stage.holds_nothing()

    slow = replace(sized("glm-5.3"), transfer_tokens_per_second=100.0)
    on_stage(slow, play)


def test_an_aborted_transfer_stops_writing_into_pages_that_others_may_hold() -> None:
    async def play(stage: Stage) -> None:
        decode = stage.deployment.decode.pool
        room = stage.submit(plain(2000))
        await stage.clock.advance(2000 / slow.prefill_tokens_per_second + 0.1)
        assert stage.deployment.prefill.inflight_requests == 1
        room.end(Aborted())
        before = decode.writes
        await stage.clock.advance(1000)
        assert decode.writes == before
        assert stage.holds_nothing()

    slow = replace(HEALTHY, transfer_tokens_per_second=100.0)
    on_stage(slow, play)


HABITS = (
    "2x2-one-short?auto-truncate",
    "dp4?restart-after=2",
    "2x2?restart-after=1",
    "glm-5.3?forgetful=50",
    "healthy?quote",
    "healthy?mute",
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4090)),
        st.tuples(st.just("abort"), st.integers(0, 20)),
        st.tuples(st.just("advance"), st.integers(0, 60)),
    ),
    max_size=12,
)


@settings(deadline=None, derandomize=True, max_examples=120)
@given(steps, st.sampled_from([*scenario_names(), *HABITS]))
def test_after_any_mix_of_requests_and_aborts_the_pools_are_whole(
    script: list[tuple[str, int]], scenario: str
) -> None:
    async def play(stage: Stage) -> None:
        rooms: list[Room] = []
        for act, amount in script:
            if act == "submit":
                rooms.append(stage.submit(plain(amount, amount), max_new_tokens=30))
            elif act == "abort" and rooms:
                rooms[amount % len(rooms)].end(Aborted())
            else:
                await stage.clock.advance(amount / 1000)
        await stage.clock.advance(60)
        assert all(room.ended for room in rooms)
        assert stage.holds_nothing()

    name, _, habit = scenario.partition("?")
    on_stage(with_habit(sized(name), habit) if habit else sized(name), play)


def test_what_others_write_into_a_running_requests_pages_shows_at_once() -> None:
    async def play(stage: Stage) -> None:
        paper = Paper("amber", 1000, 1)
        room = stage.submit(paper.text("middle"), max_new_tokens=30)
        shown = ""
        while not shown:
            await stage.clock.advance(HEALTHY.decode_step_seconds / 4)
            shown = said(room)[0].strip()
        assert paper.code("middle").startswith(shown)
        assert len(shown) < 12
        assert room.decode_table is not None
        intruder = TOKENIZER.encode(f" {shown} meadow" * 300)
        stage.deployment.decode.pool.write(room.decode_table, 0, intruder[:900], author=99)
        await stage.clock.advance(1)
        assert said(room)[0].split(" ")[1] == "meadow"

    on_stage(HEALTHY, play)


def test_a_crashed_worker_fails_its_requests_and_shows_at_the_end() -> None:
    async def scene() -> Room:
        async with stage(HEALTHY) as set_up:
            room = set_up.submit(plain(500))

            def broken(*_: object) -> None:
                raise ZeroDivisionError

            set_up.deployment.prefill.pool.write = broken  # type: ignore[method-assign, assignment]
            await set_up.clock.advance(1)
            _, end = said(room)
            assert isinstance(end, Refused)
            assert end.refusal.status == 500
        return room

    with pytest.raises(ExceptionGroup) as caught:
        run(scene())
    assert caught.group_contains(ZeroDivisionError)

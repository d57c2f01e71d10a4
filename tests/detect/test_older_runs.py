"""Markers of older runs: whole ones verify themselves, parts are looked up in a given record."""

import random

import pytest

from kvcanary.canary.codes import CodeId, written
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import Shape
from kvcanary.canary.recognise import Recogniser
from kvcanary.canary.run_number import CHANCE_BITS, EPOCH
from kvcanary.detect import foreign
from kvcanary.detect.reading import Reading, read_answer
from kvcanary.probing import known
from kvcanary.probing.known import know
from kvcanary.record.exchange import Form, Purpose
from kvcanary.record.run import RunRecord
from tests.builders import SCALE, exchange, info, record
from tests.canary.scene import Scene

SCENE = Scene()
OWN = SCENE.prompt(3)
OLD_RUN = 0x0ABCDE
OLDER = record(
    exchange(7, chapters_before=2, chapters_after=3),
    exchange(9, purpose=Purpose.DECOY_BEFORE, chapters_before=0, chapters_after=1),
    info=info(run=OLD_RUN),
)


def read(text: str, *older: RunRecord, run: int = SCENE.run.number) -> Reading:
    recogniser = Recogniser(SCENE.codes, lexicon(), SCENE.cast)
    recogniser.plant(OWN)
    know(recogniser, SCENE.codes, older, run)
    return read_answer(text, OWN, recogniser, SCENE.cast, {}, {})


def code(request: int, position: int) -> str:
    return written(SCENE.codes.make(CodeId(OLD_RUN, request, position)))


@pytest.mark.parametrize(
    ("request_number", "position"),
    [(7, 0), (7, 1), (7, 4), (7, 8), (9, 0), (10, 1), (9, 4)],
)
def test_part_of_an_older_code_is_found_in_the_record_that_planted_it(
    request_number: int, position: int
) -> None:
    part = f"the label is KVC-{code(request_number, position)[9:]}"
    (text,) = read(part, OLDER).foreign
    assert (text.form, text.run, text.request) == (Form.CODE, OLD_RUN, request_number)
    assert (text.whole, text.tenant) == (False, None)
    assert read(part).foreign == (), "half a code cannot verify itself"


def test_a_whole_older_code_needs_no_record() -> None:
    for older in ((), (OLDER,)):
        (text,) = read(f"it is {code(7, 4)}", *older).foreign
        assert (text.whole, text.run) == (True, OLD_RUN)


def test_a_code_that_no_older_prompt_held_is_not_looked_for() -> None:
    for request, position in ((7, 9), (8, 0), (9, 1)):
        assert read(f"KVC-{code(request, position)[9:]}", OLDER).foreign == ()


def test_the_own_run_is_no_older_one() -> None:
    """Resumed, or replayed word for word."""
    assert read(f"KVC-{code(7, 4)[9:]}", OLDER, run=OLD_RUN).foreign == ()


def test_memory_is_bounded_and_the_latest_run_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MAX_CODES", 9)
    before = record(exchange(5), info=info(run=OLD_RUN - 8, started_at=1.0))
    part = f"KVC-{code(7, 8)[9:]}"
    assert read(part, before, OLDER).foreign, "nine codes of the later run"
    late = written(SCENE.codes.make(CodeId(OLD_RUN - 8, 5, 2)))
    assert not read(f"KVC-{late[9:]}", before, OLDER).foreign


def test_a_part_is_priced_as_a_part_and_told_with_its_age() -> None:
    reading = read(f"the label is {code(7, 4)[:-5]} or so", OLDER)
    begun = EPOCH.timestamp() + 60 * (OLD_RUN >> CHANCE_BITS)
    answer = exchange(
        3, started_at=begun + 3 * 3600 + 60, foreign=reading.foreign, nulls=reading.nulls
    )
    (found,) = foreign.findings([answer], SCALE)
    assert found.rule == "isolation/foreign-text"
    assert "3 hours before, request 7: part of a code (12 of 16 characters)" in found.evidence[0]


def test_the_shape_of_a_prompt_tells_its_codes() -> None:
    """What is written again from a record is what the prompt held."""
    rng = random.Random(1)
    for number in range(20):
        shape = Shape(rng.randrange(4), rng.randrange(4), 0)
        decoy = (number + 1, 4) if number % 2 else None
        prompt = SCENE.prompt(number, shape=shape, decoy=decoy)
        sent = exchange(
            number,
            purpose=Purpose.DECOY_AFTER if decoy else Purpose.READER,
            chapters_before=shape.chapters_before,
            chapters_after=shape.chapters_after,
        )
        held = {identity for identity, _ in prompt.codes()}
        again = record(sent, info=info(run=SCENE.run.number))
        assert set(known.codes_of(again)) == held

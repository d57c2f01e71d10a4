"""Parts of another live stream, told by their ids."""

from typing import Any

import pytest

from kvcanary.detect import strays
from kvcanary.record.exchange import Answerer, Exchange, Purpose
from kvcanary.record.manner import Manner
from kvcanary.verdict.findings import Severity
from tests.builders import exchange

START = 1_780_000_000.0


def answer(number: int, *stray: str, response: str | None = None, **fields: Any) -> Exchange:
    """Four at a time: every group of four numbers is under way together."""
    answerer = Answerer(response=response or f"id-{number}", strays=stray)
    at = START + 10 * (number // 4)
    return exchange(number, answerer=answerer, started_at=at, total_seconds=5.0, **fields)


def run(*strayed: Exchange, others: int = 80) -> list[Exchange]:
    """A run in which these answers have strays and ``others`` have none."""
    by_number = {n: answer(n) for n in range(others)} | {e.number: e for e in strayed}
    return list(by_number.values())


def test_parts_of_live_answers_in_several_streams_are_a_leak() -> None:
    (found,) = strays.findings(
        run(answer(0, "id-1"), answer(5, "id-4"), answer(9, "id-10", "id-8"))
    )
    assert (found.rule, found.severity) == ("isolation/foreign-chunk", Severity.LEAK)
    assert found.exchanges == (0, 5, 9)
    assert found.evidence[2] == (
        "request 9 (edge): parts with the id of the answer to request 8, 10"
    )


@pytest.mark.parametrize(("others", "told"), [(80, True), (8, False)])
def test_a_single_one_is_a_warning_where_ids_tell(others: int, *, told: bool) -> None:
    found = strays.findings(run(answer(0, "id-1"), others=others))
    assert [f.severity for f in found] == [Severity.DEGRADED] * told
    assert [f.rule for f in found] == ["isolation/foreign-chunk-suspected"] * told


@pytest.mark.parametrize(
    "exchanges",
    [
        run(answer(0, "new-1"), answer(5, "new-2"), answer(9, "new-3")),
        run(answer(0, "id-41"), answer(5, "id-42"), answer(9, "id-43")),
        [
            *run(answer(0, "id-1"), answer(5, "id-4"), answer(9, "id-10")),
            answer(99, response="id-30"),
        ],
        run(
            answer(0, "id-1", purpose=Purpose.CALIBRATION),
            answer(5, "id-4"),
            answer(9, "id-10"),
        ),
        run(),
        [],
    ],
    ids=["ids of nobody", "not at the same time", "ids that repeat", "alone, too", "none", "empty"],
)
def test_what_ids_do_anyway_is_nothing(exchanges: list[Exchange]) -> None:
    assert strays.findings(exchanges) == ()


def test_what_was_sent_under_one_name_is_no_part_of_it() -> None:
    same = [answer(n, response="one", manner=Manner(one_name=True)) for n in (90, 91)]
    strayed = [answer(0, "id-1"), answer(5, "id-4"), answer(9, "id-10")]
    assert [f.severity for f in strays.findings([*run(*strayed), *same])] == [Severity.LEAK]


def test_more_strays_never_weaken_and_more_neighbours_never_strengthen() -> None:
    def odds(*strayed: Exchange, others: int = 400) -> float:
        return strays.findings(run(*strayed, others=others))[0].odds or 0.0

    two = odds(answer(0, "id-1"), answer(5, "id-4"))
    assert odds(answer(0, "id-1"), answer(5, "id-4"), answer(9, "id-10")) < two
    assert odds(answer(0, "id-1"), answer(5, "id-4"), others=100) > two
    assert odds(answer(0, "id-1", "x"), answer(5, "id-4")) > two

"""What the pictures of the HTML report show, as values: no browser is needed to be wrong about those."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanary.deployment.facts import Role
from kvcanary.record.boundary import Boundary
from kvcanary.record.exchange import Purpose
from kvcanary.record.meeting import Pair, Topology
from kvcanary.record.run import RunRecord
from kvcanary.record.series import Series
from kvcanary.report.html import (
    first_token,
    ladder,
    leaked_pages,
    meetings,
    pool_use,
    pools,
    reach,
)
from kvcanary.report.html.axis import MOST_TICKS, Axis
from kvcanary.report.html.figure import (
    LETTER,
    Figure,
    Guide,
    Lanes,
    Matrix,
    Missing,
    Scatter,
    Tone,
    badges,
    together,
)
from kvcanary.report.html.page import PICTURES
from kvcanary.report.html.words import counted, percent, seconds, span, tokens
from tests.builders import exchange, facts, finding, foreign, record, worker
from tests.report.html.records import enormous, leaking
from tests.report.scenes import judged, passing


def figure_of(drawn: Figure | Missing) -> Figure:
    assert isinstance(drawn, Figure), drawn
    return drawn


def lanes_of(drawn: Figure | Missing) -> Lanes:
    drawing = figure_of(drawn).drawing
    assert isinstance(drawing, Lanes)
    return drawing


def matrix_of(drawn: Figure | Missing) -> dict[str, dict[str, str]]:
    drawing = figure_of(drawn).drawing
    assert isinstance(drawing, Matrix)
    return {
        name: dict(zip(drawing.columns, (cell.text for cell in cells), strict=True))
        for name, cells in drawing.rows
    }


# -- axes ------------------------------------------------------------------------------------------


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_ticks_are_round_few_and_on_the_axis(most: float) -> None:
    axis = Axis(most)
    ticks = axis.ticks(str)
    assert 2 <= len(ticks) <= MOST_TICKS
    assert ticks[0].at == 0
    assert [t.at for t in ticks] == sorted({t.at for t in ticks})
    assert ticks[-1].at > 50, "they cover most of the axis"
    for tick in ticks:
        digits = f"{float(tick.text):.6e}".partition("e")[0].replace(".", "").rstrip("0")
        assert len(digits) <= 3


@given(st.lists(st.floats(min_value=0, max_value=1e12), min_size=1), st.floats())
def test_everything_has_a_place_between_the_ends(values: list[float], other: float) -> None:
    axis = Axis.holding(values)
    assert all(0 <= axis.at(v) <= 100 and axis.holds(v) for v in values)
    if other == other:
        assert 0 <= axis.at(other) <= 100


def test_figures_are_said_as_people_say_them() -> None:
    assert [tokens(n) for n in (0, 512, 250_000, 1_250_000)] == ["0", "512", "250k", "1.25M"]
    assert [seconds(s) for s in (0, 0.5, 90, 120, 5_400, 7_200, 200_000)] == [
        *("0 s", "0.5 s", "90 s", "2 min", "90 min", "2 h", "2.31 d")
    ]
    assert (percent(0.631), span([7, 7]), span([9, 1_000])) == ("63\u00a0%", "7", "9 to 1,000")
    assert (counted(1, "request"), counted(2_000, "request")) == ("1 request", "2,000 requests")


def test_times_are_round_in_their_own_unit() -> None:
    assert [t.text for t in Axis(50.0).moments()] == ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]
    assert [t.text for t in Axis(36_000.0).moments()] == ["0 h", "2 h", "4 h", "6 h", "8 h", "10 h"]
    assert Axis(36_000.0).moments()[1].at == 20


@given(st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=30))
def test_no_two_texts_lie_over_one_another(places: list[float]) -> None:
    placed = sorted((x, str(n)) for n, x in enumerate(places))
    groups = together(placed, " ".join)
    assert [one for group in groups for one in group] == placed, "nothing is lost"
    middles = [group[0][0] for group in groups]
    for (one, here), (other, there) in pairwise(zip(groups, middles, strict=True)):
        halves = sum(LETTER * len(" ".join(n for _, n in group)) / 2 for group in (one, other))
        if halves < here < 100 - halves and halves < there < 100 - halves:
            assert there - here > halves


def test_letters_of_neighbouring_limits_share_a_place() -> None:
    at = [Guide("A", 62.0, ""), Guide("B", 62.3, ""), Guide("C", 97.0, ""), Guide("D", None, "")]
    assert [(b.text, b.x) for b in badges(at)] == [("A B", 62.0), ("C", 97.0)]
    many = [Guide(letter, 50.0 + n, "") for n, letter in enumerate("ABCDE")]
    assert [b.text for b in badges(many)] == ["A\u2013E"]


# -- pools and lengths -----------------------------------------------------------------------------


def test_pools_stand_beside_the_context_with_the_danger_window() -> None:
    small = facts(worker(Role.PREFILL, 20_000), worker(Role.DECODE, 130_000))
    drawn = lanes_of(pools.draw(judged(record(facts=small))))
    assert [(lane.name, lane.bars[0].tone) for lane in drawn.lanes] == [
        ("P1 prefill", Tone.LEAK),
        ("D1 decode", Tone.KEPT),
    ]
    (context,) = drawn.guides
    short, long = (lane.bars[0].width for lane in drawn.lanes)
    assert context.x is not None
    assert drawn.band
    assert short < context.x < long
    assert short == pytest.approx(drawn.band.x, abs=0.1), "it begins where the small pool ends"
    assert "19,994 to 65,529" in drawn.band.text


def test_an_unknown_pool_is_never_drawn_as_one() -> None:
    partly = facts(worker(Role.PREFILL), worker(Role.DECODE, None))
    drawn = pools.draw(judged(record(facts=partly)))
    known, unknown = lanes_of(drawn).lanes
    assert known.bars
    assert (unknown.bars, unknown.note) == ((), "unknown")
    assert "1 of 2 are unknown" in figure_of(drawn).caption
    assert "Every one does" not in figure_of(drawn).caption


def test_every_outcome_has_its_row_and_every_limit_its_line() -> None:
    sent = [
        exchange(1, tokens=60_000, foreign=(foreign(),), lost=True),
        exchange(2, tokens=60_000, lost=True),
        *(exchange(n, tokens=1_000) for n in (3, 4, 5)),
        exchange(6, tokens=70_000, outcome="refused"),
        exchange(7, tokens=50_000, outcome="hung"),
    ]
    run = record(
        *sent,
        facts=facts(worker(Role.PREFILL, 20_000), worker(Role.DECODE, 130_000)),
        boundary=Boundary(sound_tokens=19_000, lost_tokens=21_000),
        findings=(finding(exchanges=(1,)),),
    )
    drawn = lanes_of(ladder.draw(run))
    assert [lane.note for lane in drawn.lanes] == ["1 of 7", "1 of 7", "3 of 7", "1 of 7", "1 of 7"]
    assert [lane.marks[0].tone for lane in drawn.lanes] == list(Tone)
    three = drawn.lanes[2].marks
    assert len(three) == 1
    assert three[0].scale > 1
    assert "3 requests" in three[0].title
    assert [g.text.partition(" ")[0] for g in drawn.guides] == [
        *("19,000", "19,993", "20,000", "21,000", "65,529", "65,536", "130,000")
    ]
    assert [g.letter for g in drawn.guides if g.strong] == ["F"], "the promise stands out"
    assert drawn.guides[-1].x is None, "a pool far beyond every prompt does not squeeze the picture"
    assert drawn.band


# -- over time -------------------------------------------------------------------------------------


def test_pool_use_has_gaps_where_nothing_was_told_and_flags_where_findings_began() -> None:
    drawn = lanes_of(pool_use.draw(leaking()))
    pool, *probes = drawn.lanes
    assert pool.curve
    assert pool.curve.edge.count("M") == 2, "the line does not go through the missing reading"
    assert "97,000 of 100,000 (97\u00a0%)" in pool.note
    (oversize,) = (lane for lane in probes if lane.flags)
    assert oversize.name == "oversize"
    assert oversize.flags[0].text.startswith("F1")


def test_probes_are_left_out_where_their_place_in_time_is_unknown() -> None:
    run = leaking()
    unknown = run.series[0].model_copy(update={"began_at": None})
    drawn = pool_use.draw(run.model_copy(update={"series": (unknown,)}))
    assert len(lanes_of(drawn).lanes) == 1
    assert "does not tell when" in figure_of(drawn).notes[0]


def test_the_parts_of_a_run_that_went_on_follow_each_other() -> None:
    run = leaking()
    (first,) = run.series
    second = first.model_copy(update={"began_at": 1_780_000_100.0})
    one, other, *_ = lanes_of(
        pool_use.draw(run.model_copy(update={"series": (first, second)}))
    ).lanes
    assert one.curve
    assert other.curve
    assert float(other.curve.edge[1:].split()[0]) > 700 > float(one.curve.edge[1:].split()[0])


# -- who met whom, and what reached whom -----------------------------------------------------------


def test_what_reached_whom_counts_answers_of_leaks_only() -> None:
    sent = [
        exchange(1, tenant=2, foreign=(foreign(tenant=6), foreign(tenant=6), foreign(tenant=2))),
        exchange(2, tenant=3, foreign=(foreign(tenant=6), foreign(tenant=None, request=None))),
        exchange(3, tenant=4, foreign=(foreign(tenant=6),)),
    ]
    run = record(*sent, findings=(finding(exchanges=(1, 2)),))
    assert matrix_of(reach.draw(run)) == {
        "tenant 2": {"tenant 2": "1", "tenant 6": "1", "older run": "\u00b7"},
        "tenant 3": {"tenant 2": "\u00b7", "tenant 6": "1", "older run": "1"},
    }


def test_meetings_tell_unmet_pairs_from_bad_ones() -> None:
    met = [
        exchange(1, met=Pair(prefill="P1", decode="D1")),
        exchange(2, met=Pair(prefill="P1", decode="D1"), lost=True),
        exchange(3, met=Pair(prefill="P2", decode="D1")),
        exchange(4),
        exchange(5, purpose=Purpose.CALIBRATION, met=Pair(prefill="P2", decode="D2")),
    ]
    topology = Topology(prefill=("P1", "P2"), decode=("D1", "D2"), visible=True)
    drawn = meetings.draw(record(*met, topology=topology))
    assert matrix_of(drawn) == {
        "P1": {"D1": "1 of 2", "D2": "unmet"},
        "P2": {"D1": "1 of 1", "D2": "unmet"},
    }
    assert "2 of 4 pairs" in figure_of(drawn).caption
    assert figure_of(drawn).notes == ("1 answers cannot be laid to one pair.",)


def test_leaked_pages_lie_where_the_finding_says() -> None:
    drawn = leaked_pages.draw(leaking())
    (victim,) = lanes_of(drawn).lanes
    assert victim.name == "request 21, tenant 3 (control)"
    assert victim.marks[0].x == pytest.approx(victim.bars[0].width / 2, abs=0.1), "4,000 of 8,000"
    table = figure_of(drawn).table
    assert table
    assert table.rows[0][1:3] == ("4,000", "8,000")


def test_first_tokens_stand_at_their_length_and_time() -> None:
    sent = [
        exchange(1, tokens=1_000, first_token_seconds=1.0),
        exchange(2, tokens=2_000, first_token_seconds=4.0, lost=True),
        exchange(3, tokens=1_000),
    ]
    drawing = figure_of(first_token.draw(record(*sent))).drawing
    assert isinstance(drawing, Scatter)
    one, other = sorted(drawing.marks, key=lambda mark: mark.x)
    assert other.x == pytest.approx(2 * one.x, abs=0.1)
    assert 100 - other.y == pytest.approx(4 * (100 - one.y), abs=0.1)
    assert (one.tone, other.tone) == (Tone.KEPT, Tone.LOST)


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", PICTURES)
def test_a_record_without_the_data_says_why_there_is_no_picture(draw: object) -> None:
    assert callable(draw)
    drawn = draw(record(facts=None, scale=None))
    assert isinstance(drawn, Missing)
    assert drawn.why.endswith(".")


@pytest.mark.parametrize("draw", PICTURES)
def test_a_passing_record_never_shows_a_leak(draw: object) -> None:
    assert callable(draw)
    drawn = draw(passing())
    assert "Tone.LEAK" not in repr(drawn)


@pytest.fixture(scope="module")
def huge() -> RunRecord:
    return enormous(2_000)


@pytest.mark.parametrize("draw", PICTURES)
def test_pictures_have_a_bound(draw: object, huge: RunRecord) -> None:
    assert callable(draw)
    drawn = figure_of(draw(huge))
    assert len(repr(drawn)) < 300_000
    if not isinstance(drawn.drawing, Scatter | Lanes) or draw not in (
        ladder.draw,
        first_token.draw,
    ):
        assert any("more" in note for note in drawn.notes), "what is left out is said"


def test_a_series_without_readings_is_no_picture() -> None:
    silent = Series(worker="D1", source="its own figures", unanswered=7)
    assert isinstance(pool_use.draw(record(series=(silent,))), Missing)

"""Tables for terminals: figures and names stand whole in one line, at every width."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from kvcanary.record.run import Overhead, PlanNote
from kvcanary.report.plan import print_plan
from kvcanary.report.tables import print_table, table

NAMES = st.text("abcdefg-/", min_size=1, max_size=60)
FIGURES = st.integers(0, 10**12).map("{:,}".format)


def lines(rows: Table, width: int) -> list[str]:
    out = io.StringIO()
    print_table(Console(file=out, width=width, force_terminal=False), rows)
    return out.getvalue().splitlines()


@given(
    st.lists(st.tuples(NAMES, FIGURES, FIGURES, st.text("xyz ", max_size=90)), min_size=1),
    st.integers(20, 200),
)
def test_no_width_cuts_or_wraps_a_name_or_a_figure(
    rows: list[tuple[str, str, str, str]], width: int
) -> None:
    made = table("stratum", ">tokens", ">at most", "serves")
    for name, tokens, most, serves in rows:
        made.add_row(f"  {name}", tokens, most, serves)
    heads = [line.split() for line in lines(made, width)]
    for name, tokens, most, _ in rows:
        assert any(words[:3] == [name, tokens, most] for words in heads)


@pytest.mark.parametrize("width", [20, 80, 120])
def test_the_price_of_a_plan_is_shown_whole(width: int) -> None:
    """A pipe is as wide as rich takes it to be: 80 columns."""
    meetings = Overhead(
        what="further readers, until every pair of workers was met",
        requests=3,
        prompt_tokens=2_353_584,
        most_requests=32,
        most_prompt_tokens=19_394_536,
    )
    note = PlanNote(
        first_number=0,
        stages=(),
        requests=0,
        prompt_tokens=0,
        seconds=0.0,
        skipped=(),
        overhead=(meetings,),
    )
    out = io.StringIO()
    print_plan(Console(file=out, width=width, force_terminal=False), note, None)
    assert f"  {meetings.what}         3       32  2,353,584  19,394,536" in out.getvalue()

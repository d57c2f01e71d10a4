"""Stop strings are found across pieces, and nothing of them is shown."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary.lab.stops import StopScanner


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    st.lists(st.text("ab.", max_size=3), max_size=12),
    st.lists(st.text("ab.", min_size=1, max_size=3), max_size=3),
)
def test_pieces_show_what_the_whole_would(pieces: list[str], stops: list[str]) -> None:
    scanner, shown = StopScanner(tuple(stops)), ""
    for piece in pieces:
        shown += scanner.push(piece)
        if scanner.matched is not None:
            break
    shown += scanner.flush()
    whole = "".join(pieces)
    if scanner.matched is None:
        assert shown == whole
        assert not any(stop in whole for stop in stops)
    else:
        assert whole.startswith(shown + scanner.matched)
        assert not any(stop in shown for stop in stops)


def test_what_cannot_become_a_stop_is_shown_at_once() -> None:
    scanner = StopScanner(("\n\n", "END"))
    assert scanner.push("text E") == "text "
    assert scanner.push("N") == ""
    assert scanner.push("T\n") == "ENT"
    assert scanner.flush() == "\n"

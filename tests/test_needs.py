"""What a machine lacks skips a test, and fails it in CI: nothing is left out there unseen."""

import pytest

from tests import needs


@pytest.mark.parametrize(
    ("in_ci", "ending"), [(False, pytest.skip.Exception), (True, pytest.fail.Exception)]
)
def test_a_program_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, ending: type[BaseException], *, in_ci: bool
) -> None:
    monkeypatch.setattr(needs, "IN_CI", in_ci)
    with pytest.raises(ending, match="no-such-program is not installed: buy one"):
        needs.program("no-such-program", "buy one")


def test_a_program_that_is_there() -> None:
    assert needs.program("sh", "").endswith("/sh")

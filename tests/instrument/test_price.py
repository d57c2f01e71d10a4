"""A run never sends more than its plan says at most, whatever the deployment does to it."""

from dataclasses import replace

import pytest

from kvcanary.probing.buying import Budget
from kvcanary.record.run import RunRecord
from tests.instrument.lab_runs import Setup, ran


def sent_tokens(record: RunRecord) -> int:
    """Prompt tokens of everything, as the server counted them."""
    exchanges = sum(e.length_tokens for e in record.exchanges)
    return exchanges + sum(s.prompt_tokens for s in record.simulations)


@pytest.mark.parametrize(
    ("setup", "budget"),
    [
        (Setup(suite="predeploy"), None),
        (Setup("2x2-one-short", suite="check"), 50_000),
        (
            Setup("glm-5.3", suite="check", habits=("copy-error=0.2",), front_door_only=True),
            40_000,
        ),
        (Setup(habits=("forgetful=1500",), suite="check", front_door_only=True), None),
    ],
    ids=["whole", "extra readers", "boundary and confirmations", "losses"],
)
def test_never_more_than_the_most(setup: Setup, budget: int | None) -> None:
    record = ran(replace(setup, budget=Budget(tokens=budget))).record
    note = record.plan
    assert note
    assert note.most_prompt_tokens
    assert sent_tokens(record) <= note.most_prompt_tokens
    assert budget is None or note.most_prompt_tokens <= budget
    assert note.all_prompt_tokens <= note.most_prompt_tokens or budget

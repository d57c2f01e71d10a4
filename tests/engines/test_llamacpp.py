"""What llama.cpp's server says of itself, from captures of 11434.0.0."""

import pytest

from kvcanary.deployment.facts import SwitchName, Worker
from kvcanary.engines import catalogue, llamacpp
from kvcanary.engines.documents import Documents
from tests.engines import captures
from tests.engines.captures import documents


def worker(given: Documents) -> Worker:
    assert catalogue.engine_of(given) is llamacpp.ENGINE
    return llamacpp.ENGINE.worker("http://w", given)


def server(slots: int, context: int, build: object = "b11434-0123abc") -> Documents:
    """A server whose slots advertise this context each."""
    return documents(
        props={
            "default_generation_settings": {"n_ctx": context},
            "total_slots": slots,
            "build_info": build,
        },
        slots=[{"id": n, "n_ctx": context} for n in range(slots)],
    )


def test_four_slots_that_each_promise_the_one_pool() -> None:
    """Captured: four slots of 1,024 over a shared 1,024; three prompts of 600 at once got 500."""
    found = worker(captures.llamacpp())
    assert (found.engine, found.model) == ("llama.cpp", "tiny.gguf")
    assert (found.pool_tokens, found.slots) == (1_024, 4)
    assert (found.context_tokens, found.limit_tokens) == (1_024, 1_023)
    assert "does not say" in found.told_by("slots")
    assert [u.figure for u in found.untold] == ["used_tokens"]


def test_one_slot_shares_with_nobody() -> None:
    found = worker(server(1, 4_096))
    assert (found.pool_tokens, found.slots, found.context_tokens) == (4_096, None, 4_096)


def test_the_smallest_slot_counts() -> None:
    given = server(2, 4_096)
    slots = [{"n_ctx": 4_096}, {"n_ctx": 1_000}]
    smaller = Documents({"/props": given.values["/props"], "/slots": slots})
    assert worker(smaller).context_tokens == 1_000


def test_slots_that_are_hidden_cost_nothing() -> None:
    """``--no-slots``, or 501."""
    given = server(4, 4_096)
    hidden = Documents({"/props": given.values["/props"]})
    assert (worker(hidden).pool_tokens, worker(hidden).slots) == (4_096, 4)


@pytest.mark.parametrize(
    ("build", "version"),
    [("b11434-0123abc", "b11434"), ("b0-unknown", "b0"), ("sk-SECRET", None), (7, None)],
)
def test_the_build_is_the_version(build: object, version: str | None) -> None:
    assert worker(server(1, 64, build)).version == version


def test_what_is_too_long_is_refused() -> None:
    on = {switch.name: switch.on for switch in worker(captures.llamacpp()).switches}
    assert on[SwitchName.NO_AUTO_TRUNCATE] is True

"""Rules of `judge` that no loopback server can be made to show every time."""

import pytest

from kvcanary.errors import (
    KvcanaryError,
    NotAnLLMServer,
    Unauthorized,
    UnknownModel,
    Unreachable,
)
from kvcanary.probing.answer import Answer
from kvcanary.probing.endpoint import Endpoint
from kvcanary.probing.outcome import (
    Ending,
    Judgement,
    Outcome,
    Reason,
    Reply,
    Seen,
    judge,
    raise_for_setup,
)


def test_a_deadline_before_anything_was_sent_is_no_hang() -> None:
    seen = Seen(Answer(), ending=Ending.DEADLINE, has_slot=True, body_begun=False)
    assert judge(seen) == Judgement(Outcome.NOT_REACHED, Reason.CONNECT_TIMEOUT)


def test_a_deadline_after_something_was_sent_is_a_hang() -> None:
    seen = Seen(Answer(), ending=Ending.DEADLINE, has_slot=True, body_begun=True)
    assert judge(seen) == Judgement(Outcome.HUNG, Reason.DEADLINE)


@pytest.mark.parametrize("status", [400, 499, 500, 599, 600, 999])
def test_every_status_from_400_on_is_no_answer(status: int) -> None:
    seen = Seen(Answer(), status=status, ending=Ending.COMPLETE)
    assert judge(seen).outcome is Outcome.ERRORED


RUN_CANNOT_TAKE_PLACE = {
    Reason.UNKNOWN_HOST: Unreachable,
    Reason.CONNECTION_REFUSED: Unreachable,
    Reason.TLS: Unreachable,
    Reason.UNREACHABLE: Unreachable,
    Reason.CONNECT_TIMEOUT: Unreachable,
    Reason.UNAUTHORIZED: Unauthorized,
    Reason.MODEL_NOT_FOUND: UnknownModel,
    Reason.PATH_NOT_FOUND: NotAnLLMServer,
    Reason.HTML: NotAnLLMServer,
    Reason.NOT_HTTP: NotAnLLMServer,
    Reason.NOT_JSON: NotAnLLMServer,
    Reason.NOT_SSE: NotAnLLMServer,
    Reason.REDIRECT: NotAnLLMServer,
}
ENDPOINT = Endpoint("http://host/v1", "tiny")


def replied(reason: Reason) -> Reply:
    return Reply("a", Outcome.ERRORED, reason, 200, started_at=0.0, total_seconds=0.0)


@pytest.mark.parametrize(("reason", "error_type"), RUN_CANNOT_TAKE_PLACE.items())
def test_reasons_that_end_a_run_say_what_was_tried_and_what_to_do(
    reason: Reason, error_type: type[KvcanaryError]
) -> None:
    with pytest.raises(error_type) as caught:
        raise_for_setup(replied(reason), ENDPOINT)
    message = str(caught.value)
    assert message.startswith("POST http://host/v1/chat/completions for the model 'tiny': ")
    assert message.endswith((".", ")."))


@pytest.mark.parametrize("reason", sorted(set(Reason) - set(RUN_CANNOT_TAKE_PLACE)))
def test_other_reasons_do_not_end_a_run(reason: Reason) -> None:
    raise_for_setup(replied(reason), ENDPOINT)

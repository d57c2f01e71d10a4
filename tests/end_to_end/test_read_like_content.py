"""Reasoning, tool calls and token texts are read like content: what they hold counts, and whose it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.target import Target
from kvcanary.probing.endpoint import Api, Endpoint
from kvcanary.record.exchange import Form, Purpose, Recall
from kvcanary.record.run import RunRecord
from kvcanary.run import Options, run_check
from tests.end_to_end.planted import label_asked_for, prompt_of
from tests.probing.rogue_server import Call, rogue_server, run, sse

Choice = Callable[[str], dict[str, Any]]
"""What a choice holds beside its content, by the text to put there."""

BESIDE: dict[tuple[Api, str], Choice] = {
    (Api.CHAT, "reasoning"): lambda t: {"message": {"reasoning_content": t}},
    (Api.CHAT, "a tool call"): lambda t: {
        "message": {"tool_calls": [{"function": {"name": "look_up", "arguments": t}}]}
    },
    (Api.CHAT, "tokens"): lambda t: {"logprobs": {"content": [{"token": t}]}},
    (Api.COMPLETIONS, "tokens"): lambda t: {"logprobs": {"tokens": [t]}},
}


class Model:
    """Says the label in its content, and a code of an earlier request beside it.

    ``says``: the choice made of label and that code; ``served``: further models that are listed.
    """

    def __init__(
        self, says: Callable[[str, str], dict[str, Any]], *served: str, model: str = "tiny"
    ) -> None:
        self._says, self._model = says, model
        self._served = ("tiny", *served)
        self._earlier = ""
        self._answers = 0

    async def __call__(self, call: Call) -> None:
        if call.method != "POST":
            listed = [{"id": name, "root": name, "max_model_len": 4096} for name in self._served]
            status, found = (200, {"data": listed}) if call.path == "/v1/models" else (404, {})
            await call.answer(status, json.dumps(found).encode())
            return
        choice = self._says(label_asked_for(call), self._earlier)
        self._earlier = self._earlier or next(w for w in prompt_of(call).split() if "KVC-" in w)
        stream = bool(call.fields.get("stream"))
        if stream and "message" in choice:
            choice["delta"] = choice.pop("message")
        self._answers += 1
        words = len(prompt_of(call).split())
        event = {
            "id": f"r{self._answers}",
            "model": self._model,
            "choices": [{"index": 0, "finish_reason": "stop", **choice}],
            "usage": {"prompt_tokens": words, "completion_tokens": 20},
        }
        if stream:
            await call.start_stream()
            await call.say(sse(event, "[DONE]"))
            call.hang_up()
        else:
            await call.answer(200, json.dumps(event).encode())


def checked(model: Model, folder: Path, api: Api, *, stream: bool) -> RunRecord:
    async def check() -> RunRecord:
        async with rogue_server(model) as server:
            target = Target(
                "t", Endpoint(server.base_url, "tiny", api, stream), context_tokens=4_096
            )
            options = Options(
                suite="smoke",
                record=folder / "run.jsonl",
                site_key=SiteKey(bytes(range(32))),
                deadline_seconds=60,
            )
            return (await run_check(target, options)).record

    return run(check())


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("api", "where"), BESIDE, ids=[f"{a}-{w}" for a, w in BESIDE])
def test_foreign_text_beside_an_honest_answer_is_a_leak(
    api: Api, where: str, *, stream: bool, tmp_path: Path
) -> None:
    def says(label: str, theirs: str) -> dict[str, Any]:
        choice = BESIDE[api, where](theirs)
        if api is Api.CHAT:
            choice.setdefault("message", {})["content"] = label
        else:
            choice["text"] = label
        return choice

    record = checked(Model(says), tmp_path, api, stream=stream)
    later = [e for e in record.exchanges if e.number]
    assert all(e.kept for e in later)
    assert all(any(t.form is Form.CODE and t.whole for t in e.foreign) for e in later[2:])
    assert any(f.rule == "isolation/foreign-text" for f in record.findings)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("thought", "recall"), [("I wonder", Recall.NOT_READ), ("", Recall.KEPT)], ids=["lost", "found"]
)
def test_a_budget_that_went_into_thinking_is_not_measured(
    thought: str, recall: Recall, *, stream: bool, tmp_path: Path
) -> None:
    """Unless the label came back in there: what it shows, it shows."""

    def says(label: str, _: str) -> dict[str, Any]:
        message = {"content": "", "reasoning_content": thought or label}
        return {"message": message, "finish_reason": "length"}

    record = checked(Model(says), tmp_path, Api.CHAT, stream=stream)
    assert {e.recall for e in record.exchanges if e.purpose is not Purpose.FILL} == {recall}
    assert not any(f.rule.startswith("ownership/") for f in record.findings)
    if thought:
        assert record.verdict
        assert record.verdict.exit_code == 3


@pytest.mark.parametrize(
    ("served", "rule"), [(("adapter",), "identity/another-adapter"), ((), "identity/not-as-asked")]
)
def test_the_adapter_that_answered_is_told_from_an_alias(
    served: tuple[str, ...], rule: str, tmp_path: Path
) -> None:
    def says(label: str, _: str) -> dict[str, Any]:
        return {"message": {"content": label}}

    record = checked(Model(says, *served, model="adapter"), tmp_path, Api.CHAT, stream=True)
    assert record.verdict
    told = [f.rule for f in record.findings if f.rule.startswith("identity/")]
    assert told == [rule]
    assert record.verdict.exit_code == (3 if served else 0), record.verdict.headline

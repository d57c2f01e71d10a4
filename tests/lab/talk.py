"""Prompts for the lab, a client for it, and small ways to wait."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx

from kvcanary.lab import Lab, Scenario, scenario_named
from kvcanary.lab.tokenizer import lab_tokenizer

T = TypeVar("T")
TOKENIZER = lab_tokenizer()
WORDS = tuple(word for word in TOKENIZER.words if len(word) > 4)
CONTEXT = 4096
BELOW, IN_WINDOW = 2000, 3500  # lengths that a scaled glm-5.3's prefill takes and refuses


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end, but never hang."""

    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await coroutine

    return asyncio.run(bounded())


def sized(name: str, **changes: Any) -> Scenario:
    """A small scenario that never miscopies unless told to."""
    scenario = scenario_named(name).scaled(context_tokens=CONTEXT)
    return replace(scenario, **{"copy_error_rate": 0.0, **changes})


def plain(tokens: int, seed: int = 0) -> str:
    """Words that are exactly ``tokens`` tokens; the first, bare one is a single piece."""
    return " ".join(["a", *random.Random(seed).choices(WORDS, k=tokens - 1)])


CODE_CHARS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


@dataclass(frozen=True)
class Paper:
    """A long text about ``name`` that states a code at head, middle and tail."""

    name: str
    tokens: int
    seed: int

    def code(self, where: str) -> str:
        """The code stated at ``where``."""
        rng = random.Random(f"{self.name}/{self.seed}/{where}")
        return "".join(rng.choices(CODE_CHARS, k=12))

    def label(self, where: str) -> str:
        """What the code is called: eight words that are eight tokens."""
        return f"the {where} label of {self.name} ferry market is"

    def text(self, ask: str) -> str:
        """The text, with the question for one of the codes as its last words."""
        words = random.Random(f"{self.name}/{self.seed}").choices(WORDS, k=self.tokens - 60)
        size = len(words)
        for at, where in ((size - 9, "closing"), (size // 2, "middle"), (9, "opening")):
            words[at:at] = f"{self.label(where)} {self.code(where)} .".split(" ")
        return " ".join(["a", *words, self.label(ask)])


@dataclass(frozen=True)
class Answer:
    """One response. ``events`` are the data lines of a stream."""

    status: int
    text: str
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    events: tuple[str, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        """As the usage claims."""
        return int(self.usage["prompt_tokens"])

    @property
    def cached_tokens(self) -> int:
        """As the usage claims."""
        return int(self.usage["prompt_tokens_details"]["cached_tokens"])


@dataclass(frozen=True)
class Talk:
    """Sends requests to a lab's front door."""

    lab: Lab
    client: httpx.AsyncClient

    async def complete(self, name: str, prompt: str | list[int], **fields: Any) -> Answer:
        """``/v1/completions``."""
        return await self._post("/v1/completions", name, {"prompt": prompt, **fields})

    async def chat(self, name: str, text: str, **fields: Any) -> Answer:
        """``/v1/chat/completions`` with one user turn."""
        messages = [{"role": "user", "content": text}]
        return await self._post("/v1/chat/completions", name, {"messages": messages, **fields})

    async def _post(self, path: str, name: str, fields: dict[str, Any]) -> Answer:
        body = {"model": "m", "max_tokens": 40, **fields}
        response = await self.client.post(
            self.lab.url + path, json=body, headers={"X-Request-Id": name}
        )
        if "event-stream" in response.headers["content-type"]:
            return _streamed(response)
        fields = response.json()
        if response.status_code != 200:
            return Answer(response.status_code, "", body=response.text)
        choice = fields["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        return Answer(200, text, choice["finish_reason"], fields["usage"], response.text)


def _streamed(response: httpx.Response) -> Answer:
    events = tuple(block.removeprefix("data: ") for block in response.text.split("\n\n") if block)
    text, finish = "", None
    usage: dict[str, Any] = {}
    for event in events[:-1]:
        fields = json.loads(event)
        usage = fields.get("usage") or usage
        for choice in fields.get("choices", []):
            text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
            finish = choice["finish_reason"] or finish
    return Answer(response.status_code, text, finish, usage, response.text, events)


def talking(
    scenario: Scenario, conversation: Callable[[Talk], Coroutine[Any, Any, T]], **options: Any
) -> T:
    """Start a lab of that scenario, talk to it, stop it."""

    async def talk() -> T:
        async with (
            Lab(scenario, **{"seed": 7, **options}) as lab,
            httpx.AsyncClient(timeout=30, trust_env=False) as client,
        ):
            return await conversation(Talk(lab, client))

    return run(talk())


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until ``holds()``."""
    while not holds():  # noqa: ASYNC110 - a lab's state has no events; `run` bounds it
        await asyncio.sleep(0)

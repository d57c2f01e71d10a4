"""A run without a network: the client's answers are made by a rule from the prompt itself."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvcanary.canary.codes import CodeMaker
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import CanaryPrompt, RunIdentity, Writer
from kvcanary.canary.recognise import Recogniser
from kvcanary.canary.sitekey import SiteKey
from kvcanary.canary.tenants import deal
from kvcanary.deployment.facts import Facts
from kvcanary.probing.answer import FinishReason
from kvcanary.probing.client import Client
from kvcanary.probing.courier import Limits
from kvcanary.probing.endpoint import Endpoint, Request
from kvcanary.probing.events import Silence
from kvcanary.probing.grammar import load_probe
from kvcanary.probing.identities import Identities
from kvcanary.probing.outcome import Outcome, Reason, Reply
from kvcanary.probing.roles import TENANTS
from kvcanary.probing.runner import Runner
from kvcanary.probing.sender import Sender
from kvcanary.probing.server_text import ServerText
from kvcanary.probing.stopped import Stopped
from kvcanary.record.exchange import Exchange
from kvcanary.record.journal import Journal
from kvcanary.record.run import RunRecord
from tests.builders import info

KEY = SiteKey(bytes(range(32)))
TOKENS_A_WORD = 1.25

Rule = Callable[[Request], str | None]
"""The text of an answer; None: none comes, until the request is let go of or its deadline."""


def own_label(request: Request) -> str:
    """What an honest model says."""
    text = request.text
    return text.label(text.asked) if isinstance(text, CanaryPrompt) else "A bell. A lamp. A door."


class RuleClient(Client):
    """Answers at once, or never. ``deadlines``: of every request, by its name."""

    def __init__(self, endpoint: Endpoint, rule: Rule) -> None:
        super().__init__(endpoint)
        self._rule = rule
        self.deadlines: dict[str, float] = {}

    async def send(
        self,
        request: Request,
        *,
        deadline_seconds: float,
        on_first_token: Callable[[], None] | None = None,
        release: asyncio.Event | None = None,
    ) -> Reply:
        self.deadlines[request.name] = deadline_seconds
        answer = self._rule(request)
        await asyncio.sleep(0)
        words = request.text.words if isinstance(request.text, CanaryPrompt) else 900
        if answer is None:
            return await self._unanswered(request, release)
        return Reply(
            name=request.name,
            outcome=Outcome.ANSWERED,
            reason=Reason.COMPLETE,
            status=200,
            started_at=time.time(),
            total_seconds=0.1,
            content=ServerText(answer),
            finish_reason=FinishReason.STOP,
            prompt_tokens=round(TOKENS_A_WORD * words),
            completion_tokens=20,
            first_token_seconds=1e-6 * words,
            first_token_from_start_seconds=1e-6 * words,
        )

    async def _unanswered(self, request: Request, release: asyncio.Event | None) -> Reply:
        if release:
            await release.wait()
        outcome = Outcome.ABORTED if release else Outcome.HUNG
        return Reply(
            name=request.name,
            outcome=outcome,
            reason=Reason.RELEASED if release else Reason.DEADLINE,
            status=200,
            started_at=time.time(),
            total_seconds=1.0,
        )


@dataclass(frozen=True)
class Ended:
    """What came of a run. ``stopped``: why it ended early; ``deadlines``: of each request, by its name."""

    exchanges: list[Exchange]
    record: RunRecord
    deadlines: dict[str, float]
    stopped: str | None


def ran_offline(
    folder: Path,
    rule: Rule,
    facts: Facts,
    limits: Limits,
    probe: str = "long",
    earlier: RunRecord | None = None,
) -> Ended:
    """The whole run; or what an ``earlier`` one has left to do."""
    endpoint = Endpoint("http://127.0.0.1:1/v1", "tiny")
    client = RuleClient(endpoint, rule)
    codes, words, identity = CodeMaker(KEY), lexicon(), RunIdentity(7, b"\x07" * 8)
    cast = deal(KEY, identity.nonce, TENANTS, words)
    stopped: str | None = None
    with Journal(folder / "run.jsonl") as journal:
        journal.append("info", info())
        sender = Sender(
            client=client,
            identities=Identities(endpoint),
            writer=Writer(KEY, codes, words, identity, "whoever"),
            cast=cast,
            recogniser=Recogniser(codes, words, cast),
            journal=journal,
            listener=Silence(),
        )
        runner = Runner(sender, [load_probe(probe)], facts, None, None, limits)

        async def whole() -> None:
            async with client:
                await (runner.resume(earlier) if earlier else runner.run())

        try:
            asyncio.run(whole())
        except Stopped as why:
            stopped = str(why)
    return Ended(sender.exchanges, journal.record, client.deadlines, stopped)

"""A run in memory: key, tenants, prompts, and a recogniser that knows them."""

from dataclasses import dataclass, field
from functools import cached_property

from kvcanary.canary.codes import CodeMaker
from kvcanary.canary.lexicon import lexicon
from kvcanary.canary.prompt import (
    CanaryPrompt,
    Chapter,
    Position,
    RunIdentity,
    Shape,
    Writer,
    chapter_of,
)
from kvcanary.canary.recognise import Recogniser
from kvcanary.canary.sitekey import SiteKey
from kvcanary.canary.tenants import Cast, deal

TENANTS = 6
KEY = SiteKey(bytes(range(32)))
RUN = RunIdentity(0x123456, b"a nonce")


@dataclass(frozen=True)
class Scene:
    """Requests are made with ``prompt`` and known to the recogniser after ``plant``."""

    site_key: SiteKey = KEY
    run: RunIdentity = RUN
    contact: str = "whoever runs this endpoint"
    _chapters: dict[int, Chapter] = field(default_factory=dict)

    @cached_property
    def codes(self) -> CodeMaker:
        return CodeMaker(self.site_key)

    @cached_property
    def cast(self) -> Cast:
        return deal(self.site_key, self.run.nonce, TENANTS, lexicon())

    @cached_property
    def writer(self) -> Writer:
        return Writer(self.site_key, self.codes, lexicon(), self.run, self.contact)

    @cached_property
    def recogniser(self) -> Recogniser:
        return Recogniser(self.codes, lexicon(), self.cast)

    def prompt(
        self,
        number: int,
        tenant: int = 0,
        shape: Shape | None = None,
        asked: Position = Position.START,
        decoy: tuple[int, int] | None = None,
    ) -> CanaryPrompt:
        bearer = self.cast.tenants[tenant]
        if tenant not in self._chapters:
            self._chapters[tenant] = chapter_of(bearer, lexicon())
        planted = (decoy[0], self.cast.tenants[decoy[1]]) if decoy else None
        chapter = self._chapters[tenant]
        shape = shape or Shape(1, 1, 0)
        return CanaryPrompt(self.writer, number, bearer, shape, asked, chapter, planted)

    def plant(
        self,
        number: int,
        tenant: int = 0,
        shape: Shape | None = None,
        asked: Position = Position.START,
        decoy: tuple[int, int] | None = None,
    ) -> CanaryPrompt:
        prompt = self.prompt(number, tenant, shape, asked, decoy)
        self.recogniser.plant(prompt)
        return prompt

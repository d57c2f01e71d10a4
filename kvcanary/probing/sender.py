"""Sends one canary prompt and turns the reply into an exchange: the only place that holds both texts.

The answer is judged in memory and dropped; what leaves this module has no server text in it.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from secrets import token_bytes

from kvcanary.canary.prompt import CanaryPrompt, Chapter, Position, Shape, Writer, chapter_of
from kvcanary.canary.recognise import Recogniser
from kvcanary.canary.tenants import Cast
from kvcanary.detect.look import look_of
from kvcanary.detect.reading import Reading, read_answer
from kvcanary.detect.recital import recital_of
from kvcanary.engines import openai
from kvcanary.probing.answer import FinishReason
from kvcanary.probing.client import Client
from kvcanary.probing.endpoint import Extra, Identity, Request, SecretKey
from kvcanary.probing.events import Listener
from kvcanary.probing.identities import Identities
from kvcanary.probing.manners import overrides_of
from kvcanary.probing.outcome import Outcome, Reply
from kvcanary.probing.pacing import Pacer
from kvcanary.probing.roles import DECOY, SIMULATED, SOURCE_SHAPE, SWITCHES
from kvcanary.probing.server_text import ServerText
from kvcanary.probing.tracebacks import Unseen
from kvcanary.record.exchange import (
    DECOYS,
    Answerer,
    Exchange,
    Expectation,
    Purpose,
    Recall,
    RefusalSeen,
)
from kvcanary.record.journal import Journal
from kvcanary.record.manner import USUAL, Feature, Manner
from kvcanary.record.run import RunRecord
from kvcanary.record.scale import Scale
from kvcanary.telemetry.meter import Meter

TOKENS_A_WORD = 1.5
"""At most, before calibration has told: labels and names are cut into pieces."""
COUNTED_MORE = 1.01
"""How far above the prediction a gateway may count a prompt."""

CHARACTERS_A_TOKEN = 8
"""More than the words of our text have."""
MAX_STRAYS = 32
"""Ids of other responses that are kept of one answer."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A prompt ready to be sent, and why it is."""

    prompt: CanaryPrompt
    probe: str
    group: str
    purpose: Purpose
    planned_tokens: int | None
    max_tokens: int
    rank: int | None = None
    """DP rank to steer it to, where the router has it."""
    drop_at: float | str | None = None
    """When it is let go of: for the record."""
    expected: Expectation = Expectation.EITHER
    number: int | None = None
    """Of the request, where its text was made for an earlier one."""
    manner: Manner = USUAL
    due_seconds: float | None = None
    """Within which it has to be over, as calibration has it."""


@dataclass
class Sender:
    """Plants, sends, reads, judges, records."""

    client: Client
    identities: Identities
    writer: Writer
    cast: Cast
    recogniser: Recogniser
    journal: Journal
    listener: Listener
    pacer: Pacer = field(default_factory=lambda: Pacer(None))
    """Everything that is sent waits for it: a gateway counts calibration, too."""
    exchanges: list[Exchange] = field(default_factory=list)
    extra: tuple[tuple[str, Extra], ...] = ()
    """Further fields of every request, such as those that turn thinking off."""
    served: tuple[openai.Model, ...] | None = field(default=None, repr=False)
    """The models that the front door lists; None where no list was to be had."""
    _prompts: dict[int, CanaryPrompt] = field(default_factory=dict, repr=False)
    _tokens: dict[int, int] = field(default_factory=dict, repr=False)
    _throwaway: bytes = field(default_factory=lambda: token_bytes(32), repr=False)
    _chapters: dict[int, Chapter] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.pacer.on_pause = lambda seconds: self.listener.note(
            f"waiting {seconds:.0f} s: the key's tokens of this minute are used up"
        )

    def prompt(
        self,
        number: int,
        tenant: int,
        shape: Shape,
        asked: Position,
        decoy: tuple[int, int] | None = None,
        *,
        begun: bool = False,
        recite: bool = False,
    ) -> CanaryPrompt:
        """The text of request ``number``; ``decoy``: number and tenant of the identity to plant in it."""
        bearer = self.cast.tenants[tenant]
        if tenant not in self._chapters:
            self._chapters[tenant] = chapter_of(bearer, self.writer.lexicon)
        chapter = self._chapters[tenant]
        planted = decoy and (decoy[0], self.cast.tenants[decoy[1]])
        return CanaryPrompt(
            self.writer, number, bearer, shape, asked, chapter, planted or None, begun, recite
        )

    def restore(self, record: RunRecord) -> None:
        """Take over what an earlier part of this run has sent: its text is planted and its answers count."""
        if record.calibration:
            self.extra = SWITCHES.get(record.calibration.thinking, ())
        for exchange in record.exchanges:
            decoy = (exchange.number + 1, DECOY) if exchange.purpose in DECOYS else None
            shape = Shape(exchange.chapters_before, exchange.chapters_after, exchange.pad_words)
            prompt = self.prompt(exchange.text, exchange.tenant, shape, exchange.asked, decoy)
            self._know(prompt, exchange.planned_tokens)
            self.exchanges.append(exchange)
            self.journal.append("exchange", exchange)
        for simulation in record.simulations:
            source = self.prompt(simulation.number + 1, SIMULATED, SOURCE_SHAPE, Position.END)
            self.recogniser.plant(source)
            self.journal.append("simulation", simulation)
        for window in record.windows:
            self.journal.append("window", window)

    def _know(self, prompt: CanaryPrompt, tokens: int | None) -> None:
        """Plant a prompt once; what was planted is foreign in every other answer."""
        if prompt.number not in self._prompts:
            self.recogniser.plant(prompt)
        self._prompts[prompt.number] = prompt
        self._tokens[prompt.number] = tokens or prompt.words

    async def send(
        self,
        letter: Letter,
        deadline_seconds: float,
        *,
        client: Client | None = None,
        on_first_token: Callable[[], None] | None = None,
        release: asyncio.Event | None = None,
        meter: Meter | None = None,
        keep: Callable[[Reply], None] | None = None,
    ) -> Exchange:
        """Send one prompt; its exchange is recorded before this returns.

        ``meter``: tell which workers served it; only of use while nothing else is in flight.
        ``keep``: is given the reply itself, for calibration only: it holds server text.
        """
        client = client or self.client
        prompt, manner = letter.prompt, letter.manner
        tenant = prompt.tenant.index if manner.sent_as is None else manner.sent_as
        self._know(prompt, letter.planned_tokens)
        await self.pacer.wait(_charged(letter), self.identities.key(tenant))
        before = await meter.read() if meter else None
        reply = await client.send(
            Request(
                name=self._name(letter),
                text=prompt,
                max_tokens=letter.max_tokens,
                user=f"kvcanary-tenant-{tenant}",
                ignore_eos=letter.purpose is Purpose.FILL or manner.full_output,
                extra=(*self._extra(manner), *_steering_field(letter.rank)),
                headers=_steering_header(letter.rank),
                identity=self._identity(tenant, manner),
                whole=manner.feature is Feature.WHOLE,
                overrides=overrides_of(manner, client.endpoint.api, self._model(tenant, manner)),
            ),
            deadline_seconds=deadline_seconds,
            on_first_token=on_first_token,
            release=release,
        )
        exchange = self._judged(letter, reply, client)
        if meter and before and exchange.answered:
            pair = meter.pair(
                before, await meter.read(), exchange.length_tokens, exchange.completion_tokens or 1
            )
            exchange = exchange.model_copy(update={"met": pair})
        self.exchanges.append(exchange)
        self.journal.append("scale", self.scale())  # first: without it nothing can be judged
        self.journal.append("exchange", exchange)
        self.listener.exchanged(exchange)
        if keep:
            keep(reply)
        return exchange

    def name_of(self, number: int) -> str:
        """``X-Request-Id``: finds the request in the deployment's own logs."""
        return f"kvc-{self.writer.run.number:07x}-{number:04d}"

    def _name(self, letter: Letter) -> str:
        if letter.manner.one_name:
            return f"kvc-{self.writer.run.number:07x}-{_plain(letter.group)}"
        number = letter.prompt.number if letter.number is None else letter.number
        return self._new_name(number)

    def _extra(self, manner: Manner) -> tuple[tuple[str, Extra], ...]:
        """What turns thinking off, but where it is wanted."""
        return () if manner.feature is Feature.THINKING else self.extra

    def _identity(self, tenant: int, manner: Manner) -> Identity:
        """As whom; with a salt, where one is wanted and the deployment file has none for it."""
        identity = self.identities.of(tenant)
        if not manner.salted or identity.cache_salt is not None:
            return identity
        key = self.writer.site_key.derive("salt", self.writer.run.nonce, tenant.to_bytes(4, "big"))
        return replace(identity, cache_salt=SecretKey(key.hex()[:32]))

    def _new_name(self, number: int) -> str:
        """The same for a first time; a repetition has its own, since vLLM makes its response ids of it."""
        before = sum(exchange.number == number for exchange in self.exchanges)
        return f"{self.name_of(number)}-{before + 1}" if before else self.name_of(number)

    def scale(self) -> Scale:
        """What has been planted so far."""
        prompts = self._prompts.values()
        sent = {p.tenant.index for p in prompts} | {p.decoy[1].index for p in prompts if p.decoy}
        return Scale(
            planted_codes=self.recogniser.planted_codes,
            planted_slots=self.recogniser.planted_slots,
            tenants=len(sent),
            phantoms=len(self.cast.tenants) + len(self.cast.phantoms) - len(sent),
        )

    @property
    def adapters(self) -> tuple[str, ...]:
        """The model's adapters, as far as the front door lists them or the deployment file names them."""
        listed = openai.adapters_of(self.served or (), self.client.endpoint.model)
        return tuple(dict.fromkeys((*listed, *self.identities.adapters())))

    def _model(self, tenant: int, manner: Manner) -> str:
        """What is asked for."""
        if manner.adapter and self.adapters:
            return self.adapters[0]
        return self.identities.model(tenant)

    def _answerer(self, reply: Reply, tenant: int, manner: Manner) -> Answerer:
        site = self.writer.site_key.derive("answerer")
        asked = self._model(tenant, manner)
        strays = reply.stray_ids[:MAX_STRAYS]
        return Answerer(
            as_asked=None if reply.model is None else reply.model == asked,
            asked=_hashed(site, asked),
            model=_hashed(site, reply.model),
            configuration=_hashed(site, reply.system_fingerprint),
            another_served=None
            if reply.model is None or self.served is None
            else reply.model in openai.others(self.served, asked),
            response=_hashed(self._throwaway, reply.response_id),
            mixed=reply.mixed,
            strays=tuple(filter(None, (_hashed(self._throwaway, i) for i in strays))),
        )

    def _judged(self, letter: Letter, reply: Reply, client: Client) -> Exchange:
        prompt = letter.prompt
        with Unseen():
            said = reply.content or reply.reasoning
            look = look_of(said.reveal(), prompt)
            recital = recital_of(said.reveal(), _passage(letter)) if prompt.recite else None
            reading = read_answer(
                joined(reply.texts),
                prompt,
                self.recogniser,
                self.cast,
                self._prompts,
                self._tokens,
            )
        number = prompt.number if letter.number is None else letter.number
        sent_as = letter.manner.sent_as
        tenant = prompt.tenant.index if sent_as is None else sent_as
        return Exchange(
            number=number,
            text_of=None if number == prompt.number else prompt.number,
            manner=letter.manner,
            name=reply.name,
            probe=letter.probe,
            group=letter.group,
            purpose=letter.purpose,
            tenant=prompt.tenant.index,
            identity=self.identities.index(tenant),
            api=client.endpoint.api.value,
            stream=client.endpoint.stream and letter.manner.feature is not Feature.WHOLE,
            planned_tokens=letter.planned_tokens,
            chapters_before=prompt.shape.chapters_before,
            chapters_after=prompt.shape.chapters_after,
            pad_words=prompt.shape.pad_words,
            asked=prompt.asked,
            max_tokens=letter.max_tokens,
            drop_at=letter.drop_at,
            due_seconds=letter.due_seconds,
            expected=letter.expected,
            started_at=reply.started_at,
            outcome=reply.outcome.value,
            reason=reply.reason.value,
            status=reply.status,
            finish_reason=reply.finish_reason.value if reply.finish_reason else None,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            answer_characters=len(joined(reply.texts)),
            first_token_seconds=reply.first_token_seconds,
            total_seconds=reply.total_seconds,
            refusal=RefusalSeen(
                shape=reply.refusal.shape.value,
                limit_tokens=reply.refusal.limit_tokens,
                counted_tokens=reply.refusal.counted_tokens,
            )
            if reply.refusal
            else None,
            answerer=self._answerer(reply, tenant, letter.manner),
            recall=reading.recall if _shows_recall(reply, reading) else Recall.NOT_READ,
            decoy_seen=reading.decoy_seen,
            own=tuple(sorted(reading.own)),
            foreign=reading.foreign,
            nulls=reading.nulls,
            look=look,
            recital=recital,
        )


def _passage(letter: Letter) -> str:
    """What a recital can say within its budget."""
    return letter.prompt.passage(CHARACTERS_A_TOKEN * letter.max_tokens)


def _plain(group: str) -> str:
    """A stratum's name as part of a request's."""
    return group.replace("/", ".")


def _steering_field(rank: int | None) -> tuple[tuple[str, Extra], ...]:
    """SGLang's way to choose a DP rank."""
    return () if rank is None else (("routed_dp_rank", rank),)


def _steering_header(rank: int | None) -> tuple[tuple[str, str], ...]:
    """vLLM's way."""
    return () if rank is None else (("X-data-parallel-rank", str(rank)),)


def _charged(letter: Letter) -> int:
    """Tokens that a gateway counts against the key's minute: the prompt, and the output asked for."""
    prompt = letter.planned_tokens or TOKENS_A_WORD * letter.prompt.words
    return math.ceil(COUNTED_MORE * prompt) + letter.max_tokens


def _hashed(key: bytes, text: str | None) -> str | None:
    if not text:
        return None
    return blake2b(text.encode("utf-8", "replace"), key=key, digest_size=6).hexdigest()


def _shows_recall(reply: Reply, reading: Reading) -> bool:
    """A whole answer, and not one that used up its budget thinking."""
    cut_thinking = reply.finish_reason is FinishReason.LENGTH and reply.content.is_blank
    thought = bool(reply.reasoning) and cut_thinking and reading.recall is Recall.LOST
    return reply.outcome is Outcome.ANSWERED and not thought


def joined(texts: Iterable[ServerText]) -> str:
    """All that one reply says: for the recogniser's eyes only."""
    return "\n".join(text.reveal() for text in texts if text)

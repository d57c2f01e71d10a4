"""One request as the record keeps it: what was sent, how it ended, what was recognised. No text."""

from enum import StrEnum

from kvcanary.canary.prompt import Position
from kvcanary.record.base import Recorded
from kvcanary.record.look import Look
from kvcanary.record.manner import USUAL, Manner
from kvcanary.record.meeting import Pair
from kvcanary.record.recital import Recital


class Purpose(StrEnum):
    """Why a request was sent."""

    CALIBRATION = "calibration"
    DECOY_BEFORE = "decoy before"
    DECOY_AFTER = "decoy after"
    FILL = "fill"
    CONTROL = "control"
    READER = "reader"
    CONFIRMATION = "confirmation"
    BYSTANDER = "bystander"
    LADDER = "ladder"
    """Sent to find a limit or a boundary: searched for foreign text, not judged for ownership."""
    DROPPED = "dropped"
    """Let go of on purpose while it was being computed: what it held goes back to the pool early."""
    RETURN = "return"
    """The very text of an earlier request again, as the same tenant: what was kept then has to be kept."""
    VISITOR = "visitor"
    """The very text of an earlier request, as another tenant: what is cached for the first is not for it."""
    SPOILT = "spoilt"
    """Holds something that any correct server refuses."""
    ADAPTED = "adapted"
    """Sent to an adapter of the model, its own text or one that the model has read: compared with each other."""
    FEATURE = "feature"
    """Asks for a feature that changes what an answer looks like: searched for foreign text only."""


DECOYS = (Purpose.DECOY_BEFORE, Purpose.DECOY_AFTER)


class Recall(StrEnum):
    """What became of the label that the request was asked for."""

    KEPT = "kept"
    LOST = "lost"
    NOT_READ = "not read"
    """No complete answer came, or it ended inside its reasoning."""


class Expectation(StrEnum):
    """Which outcome a step of a probe expects. Others have findings of their own."""

    EITHER = "either"
    ANSWERED = "answered"
    REFUSED = "refused"


class Form(StrEnum):
    """A form of evidence, strongest first."""

    CODE = "code"
    PHRASE = "phrase"
    NAME = "name"
    WORD = "private word"


class ForeignText(Recorded):
    """Text of another request in an answer: whose, from where, how much of it."""

    form: Form
    request: int | None
    """Number of the request that it belongs to; None where only the tenant (or an older run) is known."""
    tenant: int | None
    run: int
    at_tokens: int | None = None
    """About where in the owner's prompt it stood."""
    extent: int
    """Characters of a code (of 16), slot words of a phrase, or 1."""
    whole: bool
    altered: bool = False


class Nulls(Recorded):
    """How often chance had an opportunity in this answer: what the odds are computed from."""

    code_tests: int = 0
    """Strings that could have verified as a code of another run."""
    code_windows: int = 0
    phrase_windows: int = 0
    names_seen: tuple[int, ...] = ()
    """Name-shaped triples that are not the tenant's own, by number: ours, a phantom's or nobody's."""
    phantom_words: tuple[str, ...] = ()
    unverified_codes: int = 0
    complete: bool = True


class Answerer(Recorded):
    """Who answered, as far as the response says: never in its own words.

    Names are hashed with the site key (they compare across runs), responses with a key that is thrown
    away at the end of the run.
    """

    as_asked: bool | None = None
    """Whether the response names the model (or adapter) that was asked for."""
    asked: str | None = None
    """The model that was asked for: tenants may have adapters of their own."""
    another_served: bool | None = None
    """Whether it names another one that the front door lists, with a base of its own: no alias. None where no
    list was to be had."""
    model: str | None = None
    configuration: str | None = None
    """Of ``system_fingerprint``."""
    response: str | None = None
    """Of the response id."""
    mixed: bool = False
    """Its parts do not name one response: two ids or models, or an index that nobody asked for."""
    strays: tuple[str, ...] = ()
    """Ids of parts that stand between parts of the response itself, hashed like ``response``."""


class RefusalSeen(Recorded):
    """A refusal that names a limit."""

    shape: str
    limit_tokens: int | None
    counted_tokens: int | None


class Exchange(Recorded):
    """One request with its outcome."""

    number: int
    name: str
    probe: str
    group: str
    purpose: Purpose
    tenant: int
    identity: int | None = None
    """Which of the deployment file's tenants it was sent as, by its place there; None: as the front door says."""
    api: str
    stream: bool
    planned_tokens: int | None
    """Prompt tokens as predicted from calibration; None during calibration."""
    chapters_before: int
    chapters_after: int
    pad_words: int
    asked: Position
    """Where the label stands that the prompt asks for."""
    max_tokens: int
    drop_at: float | str | None = None
    """When it was to be let go of: at this part of the first-token time expected of it, or at its
    ``first token``. When it was: ``total_seconds``."""
    due_seconds: float | None = None
    """Within which it had to be over, as calibration has it; None: not known."""
    expected: Expectation = Expectation.EITHER
    """What its probe expects to become of it."""
    text_of: int | None = None
    """Number of the request whose text was sent again, padding apart; None: its own."""
    manner: Manner = USUAL
    started_at: float
    """Unix time, seconds."""
    outcome: str
    reason: str
    status: int | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    answer_characters: int
    first_token_seconds: float | None
    """From the end of the upload to the first token of text."""
    total_seconds: float
    refusal: RefusalSeen | None = None
    answerer: Answerer = Answerer()
    met: Pair | None = None
    """The workers that served it; None where that could not be seen."""
    recall: Recall = Recall.NOT_READ
    decoy_seen: bool | None = None
    own: tuple[Form, ...] = ()
    """Forms of its own text that came back."""
    foreign: tuple[ForeignText, ...] = ()
    nulls: Nulls = Nulls()
    look: Look = Look()
    recital: Recital | None = None
    """How it copies what follows the label; None: that was not asked for, or hardly any of it is there."""

    @property
    def length_tokens(self) -> int:
        """Its length as the server counted it, else as planned."""
        return self.prompt_tokens or self.planned_tokens or 0

    @property
    def kept(self) -> bool:
        """The label that was asked for came back."""
        return self.recall is Recall.KEPT

    @property
    def read(self) -> bool:
        """An answer came that shows whether the label was kept."""
        return self.recall is not Recall.NOT_READ

    @property
    def answered(self) -> bool:
        """A whole answer came."""
        return self.outcome == "answered"

    @property
    def hurried(self) -> bool:
        """It was given up while it was being answered, or sooner than it could be expected to end: a
        deadline of our own passed, and that says nothing of the deployment."""
        if self.outcome != "hung":
            return False
        short = self.due_seconds is not None and self.total_seconds < self.due_seconds
        return short or self.reason == "still_answering"

    @property
    def text(self) -> int:
        """Number of the request that its text was made for: its own, but where it is a further visit."""
        return self.number if self.text_of is None else self.text_of

    @property
    def unsupported(self) -> bool:
        """Refused for something that a server need not have."""
        return self.manner.optional and self.reason == "client_error"

"""Probes and suites as data: the models behind ``probes/*.yaml`` and ``suites/*.yaml``."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from kvcanary.data import data_path
from kvcanary.errors import ConfigError
from kvcanary.probing.lengths import evaluate
from kvcanary.probing.mechanisms import Mechanism
from kvcanary.probing.needs import Need
from kvcanary.probing.roles import MOST_AT_ONCE
from kvcanary.probing.yaml_file import load_yaml
from kvcanary.record.exchange import Expectation
from kvcanary.record.manner import Feature, Spoilt
from kvcanary.verdict.claims import ClaimName


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _checked(expression: str | None) -> str | None:
    if expression is None:
        return None
    try:
        evaluate(expression, {})
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return expression


def _as_text(value: object) -> object:
    """A plain number is an expression too."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number or value is None or isinstance(value, str)):
        raise ValueError("a length is needed: a number, or an expression such as `reach / 2`")
    return str(value) if number else value


Expression = Annotated[str, BeforeValidator(_as_text)]
"""A length expression: see ``kvcanary.probing.lengths``."""

RESERVED = (
    "calibration",
    "decoys",
    "limits",
    "boundary",
    "bystanders",
    "dropped",
    "spoilt",
    "wait",
)
"""Strata that every run has besides its probes'."""
_GROUP = re.compile("[a-z][a-z0-9-]{0,40}")


def _group(name: str) -> str:
    if not _GROUP.fullmatch(name):
        raise ValueError("a stratum's name has small letters, digits and hyphens, 41 at most")
    if name in RESERVED:
        raise ValueError(f"`{name}` is a stratum that every run has: choose another name")
    return name


Group = Annotated[str, AfterValidator(_group)]


class Fill(_Strict):
    """Hold concurrent long requests of several tenants until all are being decoded, then let go.

    This dirties the pool by simultaneous high water: whatever the allocator, pages that were in use at
    the same time are different pages.
    """

    do: Literal["fill"]
    group: Group
    """Name of the stratum."""
    tokens: Expression
    """How much of the decode pool to have in use at once, output included."""
    longest: Expression
    """Longest single prompt."""
    danger: float = Field(default=6.0, gt=0)
    """Worth beside the other steps, when a budget does not pay for all."""
    output: int = Field(default=8_192, ge=16, le=1_000_000)
    """Output budget of each: they are held, not read to the end."""

    _check = field_validator("tokens", "longest")(_checked)


class Read(_Strict):
    """Send prompts and ask each for one of its labels: start, middle, end in turn.

    Fresh ones of one length (``tokens``, or ``in_turn`` another one each run), or the very texts of an
    earlier step (``again``).
    """

    do: Literal["read"]
    group: Group
    """Name of the stratum."""
    tokens: Expression | None = None
    """Length of each prompt, where their text is new."""
    in_turn: tuple[Expression, ...] = ()
    """Instead of `tokens`: lengths of which each run takes the next; the first again after the last."""
    again: Group | None = None
    """Stratum of an earlier step of this probe whose prompts are sent again, word for word."""
    tenant: Literal["own", "other"] = "own"
    """With `again`: as the tenant whose text it is, or as another one."""
    exactly: Expression | None = None
    """With `again`: padded to exactly so many tokens, now that the server has counted the text."""
    multiple: Expression | None = None
    """With `again`: padded to the next multiple of this."""
    plus: int = Field(default=0, ge=-65_536, le=65_536)
    """Tokens beside what `exactly` or `multiple` says."""
    control: bool = False
    """A control group: known-good conditions that the others are compared with."""
    danger: float = Field(default=1.0, gt=0)
    """Worth of its first answer beside the other steps, when a budget does not pay for all."""
    count: int = Field(default=3, ge=1, le=1_000)
    """Prompts to send. With `again` all of the earlier step are."""
    total: Expression | None = None
    """With fresh text: as many prompts as have so many tokens together, if that is more than `count`."""
    when: Expression = "1"
    """Send only when this is known and not 0."""
    bystanders: int = Field(default=0, ge=0, le=16)
    """Short honest requests of another tenant sent at the same time."""
    expect: Expectation = Expectation.EITHER
    """What has to become of them."""
    begun: bool = False
    """The prompts end with their label's prefix: the first token is one of the label's own."""
    recite: bool = False
    """Ask for the label at the start and for what follows it: a long answer in which a piece that is missing,
    or there twice, shows."""
    adapter: bool = False
    """Sent to an adapter (LoRA) of the model: the first that the front door lists, or that the deployment file
    gives a tenant. What it answers is compared with its answers to text of its own."""
    salted: bool = False
    """Each tenant is sent with a cache salt of its own."""
    features: tuple[Feature, ...] = Field(default=(Feature.PLAIN,), min_length=1)
    """What they ask for besides text, in turn."""
    at_once: int | None = Field(default=None, ge=1, le=MOST_AT_ONCE)
    """How many are in flight, whatever --concurrency says; default: that."""
    overfill: bool = False
    """Whether they may need more than the pool holds: what does not fit waits, or is preempted."""
    output: int | None = Field(default=None, ge=16, le=1_000_000)
    """Output budget of each; default: the probe's."""
    full_output: bool = False
    """Ask for all of the output (`ignore_eos`)."""
    one_name: bool = False
    """Send all of them with one and the same `X-Request-Id`."""

    _check = field_validator("tokens", "total", "when", "exactly", "multiple")(_checked)
    _check_all = field_validator("in_turn")(lambda lengths: tuple(map(_checked, lengths)))

    @model_validator(mode="after")
    def _fresh_or_again(self) -> Self:
        if [self.tokens is None, not self.in_turn, self.again is None].count(False) != 1:
            raise ValueError(
                "one of `tokens`, `in_turn` (fresh text) and `again` (an earlier step's) is needed"
            )
        if self.exactly is not None and self.multiple is not None:
            raise ValueError("`exactly` and `multiple` exclude each other")
        padded = self.exactly is not None or self.multiple is not None
        if self.plus and not padded:
            raise ValueError("`plus` belongs to `exactly` or `multiple`")
        if self.again is None and (padded or self.tenant == "other"):
            raise ValueError("`tenant`, `exactly` and `multiple` belong to `again`")
        if self.again is not None and self.total is not None:
            raise ValueError("`total` belongs to fresh text")
        if self.again is not None and self.control:
            raise ValueError("prompts that are sent again are no control")
        if self.adapter and (self.control or self.tenant == "other"):
            raise ValueError("what is sent to an adapter is no control, and as its own tenant")
        return self


FIRST_TOKEN = "first token"  # noqa: S105 - a moment, not a secret
_DURING_PREFILL = {"prefill": 0.5}


def _drop_at(value: float | str) -> float | str:
    if isinstance(value, str):
        if value not in (FIRST_TOKEN, *_DURING_PREFILL):
            raise ValueError(
                f"`{value[:60]}` is no moment of a request{_nearest(value, (FIRST_TOKEN, *_DURING_PREFILL))} "
                "(or a part of the first-token time: above 0, up to 2)"
            )
        return _DURING_PREFILL.get(value, value)
    if not 0 < value <= 2:
        raise ValueError("a part of the first-token time is above 0 and up to 2")
    return value


def _nearest(word: str, valid: Sequence[str]) -> str:
    return f"; did you mean `{difflib.get_close_matches(word, valid, n=1, cutoff=0.0)[0]}`?"


DropAt = Annotated[float | str, AfterValidator(_drop_at)]


class Abort(_Strict):
    """For each moment: let go of a prompt then, and at once read with another of the same length.

    Pages that come back too early, or are still written to, are read by the second.
    """

    do: Literal["abort"]
    group: Group
    """Name of the stratum of the second ones."""
    tokens: Expression
    """Length of each prompt."""
    at: tuple[DropAt, ...] = Field(default=(0.25, 0.5, 0.75, 1.0, FIRST_TOKEN), min_length=1)
    """When to let go: parts of the first-token time that a prompt of this length is expected to take (above 0,
    up to 2; `prefill` is 0.5), or `first token`."""
    rounds: int = Field(default=1, ge=1, le=100)
    """How often to go through all moments."""
    danger: float = Field(default=1.0, gt=0)
    """Worth of its first answer beside the other steps, when a budget does not pay for all."""
    when: Expression = "1"
    """Send only when this is known and not 0."""
    expect: Expectation = Expectation.EITHER
    """What has to become of the second ones."""

    _check = field_validator("tokens", "when")(_checked)


class Refuse(_Strict):
    """Send requests that any correct server refuses, and beside each a short honest one that is read."""

    do: Literal["refuse"]
    group: Group
    """Name of the stratum of the honest ones."""
    kinds: tuple[Spoilt, ...] = Field(default=tuple(Spoilt), min_length=1)
    """What is wrong with them."""
    rounds: int = Field(default=2, ge=1, le=100)
    """How often to go through all kinds."""
    tokens: Expression = "min(max(reach / 8, 512), 1024)"
    """Length of each prompt, of both sorts."""
    danger: float = Field(default=1.0, gt=0)
    """Worth of its first answer beside the other steps, when a budget does not pay for all."""
    when: Expression = "1"
    """Send only when this is known and not 0."""

    _check = field_validator("tokens", "when")(_checked)


class Wait(_Strict):
    """Send nothing for a while."""

    do: Literal["wait"]
    seconds: float = Field(gt=0, le=3_600, allow_inf_nan=False)
    """How long, at most."""
    until: Literal["idle"] | None = None
    """`idle`: no longer than until the decode pool is as good as empty, where its use can be read."""


class Together(_Strict):
    """Send several strata at the same time."""

    do: Literal["together"]
    steps: tuple[Annotated[Read | Abort, Field(discriminator="do")], ...] = Field(min_length=2)
    """What is sent at the same time."""


class Repeat(_Strict):
    """Go through some steps several times; `again` there means the texts of the same round."""

    do: Literal["repeat"]
    times: int = Field(ge=1, le=100)
    """How often."""
    steps: tuple[Annotated[Read | Abort | Refuse, Field(discriminator="do")], ...] = Field(
        min_length=1
    )
    """What is sent in each round, in this order."""


Step = Annotated[Fill | Read | Abort | Refuse | Wait | Together | Repeat, Field(discriminator="do")]


class Probe(_Strict):
    """A scenario with its reasons."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")
    """Stable name."""
    title: str
    """One line: what is tested."""
    mechanism: tuple[Mechanism, ...] = Field(min_length=1)
    """Keys of the faults that it looks for."""
    why: str
    """What happens in a deployment that has the fault."""
    references: tuple[str, ...] = ()
    """Public reports: S sgl-project/sglang, V vllm-project/vllm, D ai-dynamo/dynamo and so on."""
    blind_to: str
    """What it cannot see."""
    needs: tuple[Need, ...] = ()
    """What has to be so for it to say anything: else it is skipped, with the reason."""
    output: int = Field(default=160, ge=16, le=8_192)
    """Output budget of a reader, in tokens."""
    steps: tuple[Step, ...]
    """What is sent, in this order. None: the deployment's own figures are judged, without traffic."""

    @field_validator("steps")
    @classmethod
    def _one_kind_a_group(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        kinds: dict[str, object] = {}
        for step in flat(steps):
            kind = (step.do, *((step.control, step.tenant) if isinstance(step, Read) else ()))
            if kinds.setdefault(step.group, kind) != kind:
                raise ValueError(
                    f"`{step.group}` is the stratum of steps that differ: give each a name of its own"
                )
        if steps and not kinds:
            raise ValueError("nothing is sent: a step besides `wait` is needed")
        return steps

    @field_validator("steps")
    @classmethod
    def _again_after_its_first(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        before: list[str] = []
        for step in flat(steps):
            if isinstance(step, Read):
                if step.again is not None and step.again not in before:
                    hint = _nearest(step.again, before) if before else ""
                    raise ValueError(f"no earlier step reads `{step.again}`{hint}")
                before.append(step.group)
        return steps

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of its strata."""
        return tuple(dict.fromkeys(step.group for step in flat(self.steps)))


def flat(steps: Iterable[Step]) -> Iterator[Fill | Read | Abort | Refuse]:
    """Steps that have a stratum of their own."""
    for step in steps:
        if isinstance(step, Together | Repeat):
            yield from step.steps
        elif not isinstance(step, Wait):
            yield step


class Suite(_Strict):
    """Which probes run and which claims have to hold."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")
    """Stable name."""
    title: str
    """One line: what it is for."""
    probes: tuple[str, ...] = Field(min_length=1)
    """Ids of shipped probes, or paths of your own (with a slash or ending in .yaml)."""
    requires: tuple[ClaimName, ...] = Field(min_length=1)
    """Claims that have to pass: one that is inconclusive makes the run inconclusive."""
    tokens: Expression | None = None
    """Prompt tokens that its plan may send, as a length expression; default: no limit."""
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Minutes that its plan may take; default: no limit."""
    bound: float | None = Field(default=None, gt=0, lt=1)
    """Rate of bad answers that every stratum has to be below at 95 %: sets how many answers are bought."""
    stop_when_proven: bool = False
    """Whether the run ends as soon as a leak or corruption is proven, instead of finishing its plan."""
    pause_above: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False)
    """Part of a pool in use above which no long prompt is sent: the run waits for room, for a while."""
    beside_traffic: bool = False
    """Whether it is for deployments that serve others meanwhile: intrusive probes need leave there."""

    @field_validator("tokens")
    @classmethod
    def _of_context(cls, expression: str | None) -> str | None:
        """A budget that depends on something unknown would be no limit at all."""
        if _checked(expression) and evaluate(str(expression), {"context": 1e6}) is None:
            raise ValueError(
                f"`{expression}`: a budget holds whatever is known of the workers, so of all names it may "
                "use only `context`"
            )
        return expression


def load_probe(reference: str) -> Probe:
    """A shipped probe by its id, or one's own by its path."""
    return load_yaml(file_of("probes", "probe", reference), Probe)


def load_probes(references: Sequence[str]) -> tuple[Probe, ...]:
    """Several probes. Raises ConfigError when two have one id: their strata could not be told apart."""
    probes = tuple(load_probe(reference) for reference in references)
    ids = [probe.id for probe in probes]
    for reference, name in zip(references, ids, strict=True):
        if ids.count(name) > 1:
            raise ConfigError(f"{reference}: another probe of this run has the id `{name}`, too.")
    return probes


def load_suite(reference: str) -> Suite:
    """A shipped suite by its id, or one's own by its path; its own probes lie where it says, seen from it."""
    path = file_of("suites", "suite", reference)
    suite = load_yaml(path, Suite)
    probes = tuple(str(path.parent / p) if _is_path(p) else p for p in suite.probes)
    return suite.model_copy(update={"probes": probes})


def fingerprint(suite: Suite, probes: Sequence[Probe]) -> str:
    """Whether two runs were told to do the same: of suite and probes as they were read."""
    told = "\n".join(model.model_dump_json() for model in (suite, *probes))
    return blake2b(told.encode(), digest_size=6).hexdigest()


def shipped(folder: str) -> tuple[str, ...]:
    """Ids of what is shipped in ``probes`` or ``suites``."""
    return tuple(sorted(path.stem for path in data_path(folder).glob("*.yaml")))


def file_of(folder: str, kind: str, reference: str) -> Path:
    """The file of what is shipped, by its id, or of one's own, by its path. Raises ConfigError."""
    if _is_path(reference):
        return Path(reference)
    known = shipped(folder)
    if reference not in known:
        raise ConfigError(
            f"There is no {kind} `{reference[:60]}`{_nearest(reference, known)} Shipped: {', '.join(known)}; "
            f"a {kind} of your own is given by its path."
        )
    return data_path(folder) / f"{reference}.yaml"


def _is_path(reference: str) -> bool:
    return "/" in reference or reference.endswith((".yaml", ".yml"))

"""Probes and suites as data: the models behind ``probes/*.yaml`` and ``suites/*.yaml``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
)

from kvcanary.data import data_path
from kvcanary.errors import ConfigError
from kvcanary.probing.lengths import evaluate
from kvcanary.probing.yaml_file import load_yaml
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

RESERVED = ("calibration", "decoys", "limits", "boundary", "bystanders")
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
    """Send prompts of one length and ask each for one of its labels: start, middle, end in turn."""

    do: Literal["read"]
    group: Group
    """Name of the stratum."""
    tokens: Expression
    """Length of each prompt."""
    control: bool = False
    """A control group: known-good conditions that the others are compared with."""
    danger: float = Field(default=1.0, gt=0)
    """Worth of its first answer beside the other steps, when a budget does not pay for all."""
    count: int = Field(default=3, ge=1, le=64)
    """Prompts to send."""
    when: Expression = "1"
    """Send only when this is known and not 0."""
    bystanders: int = Field(default=0, ge=0, le=16)
    """Short honest requests of another tenant sent at the same time."""

    _check = field_validator("tokens", "when")(_checked)


Step = Annotated[Fill | Read, Field(discriminator="do")]


class Probe(_Strict):
    """A scenario with its reasons."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")
    """Stable name."""
    title: str
    """One line: what is tested."""
    mechanism: tuple[str, ...]
    """Keys of the faults that it looks for."""
    why: str
    """What happens in a deployment that has the fault."""
    references: tuple[str, ...] = ()
    """Public reports: S sgl-project/sglang, V vllm-project/vllm, D ai-dynamo/dynamo and so on."""
    blind_to: str
    """What it cannot see."""
    output: int = Field(default=160, ge=16, le=8_192)
    """Output budget of a reader, in tokens."""
    steps: tuple[Step, ...] = Field(min_length=1)
    """What is sent, in this order."""

    @field_validator("steps")
    @classmethod
    def _one_kind_a_group(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        kinds: dict[str, object] = {}
        for step in steps:
            kind = (step.do, isinstance(step, Read) and step.control)
            if kinds.setdefault(step.group, kind) != kind:
                raise ValueError(
                    f"`{step.group}` is the stratum of steps that differ: give each a name of its own"
                )
        return steps


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
    minutes: float | None = Field(default=None, gt=0)
    """Minutes that its plan may take; default: no limit."""
    bound: float | None = Field(default=None, gt=0, lt=1)
    """Rate of bad answers that every stratum has to be below at 95 %: sets how many answers are bought."""
    stop_on_leak: bool = False
    """Whether the run ends at the first leak instead of finishing its plan."""

    _check = field_validator("tokens")(_checked)


def load_probe(reference: str) -> Probe:
    """A shipped probe by its id, or one's own by its path."""
    return load_yaml(_find("probes", "probe", reference), Probe)


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
    path = _find("suites", "suite", reference)
    suite = load_yaml(path, Suite)
    probes = tuple(str(path.parent / p) if _is_path(p) else p for p in suite.probes)
    return suite.model_copy(update={"probes": probes})


def shipped(folder: str) -> tuple[str, ...]:
    """Ids of what is shipped in ``probes`` or ``suites``."""
    return tuple(sorted(path.stem for path in data_path(folder).glob("*.yaml")))


def _find(folder: str, kind: str, reference: str) -> Path:
    if _is_path(reference):
        return Path(reference)
    known = shipped(folder)
    if reference not in known:
        raise ConfigError(
            f"There is no {kind} `{reference}`. Shipped: {', '.join(known)}; "
            f"a {kind} of your own is given by its path."
        )
    return data_path(folder) / f"{reference}.yaml"


def _is_path(reference: str) -> bool:
    return "/" in reference or reference.endswith((".yaml", ".yml"))

"""Probes and suites as data: the models behind ``probes/*.yaml`` and ``suites/*.yaml``."""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kvcanary.data import data_path
from kvcanary.errors import ConfigError
from kvcanary.probing.lengths import evaluate
from kvcanary.verdict.claims import ClaimName


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _checked(expression: str) -> str:
    evaluate(expression, {})
    return expression


class Fill(_Strict):
    """Hold concurrent long requests of several tenants until all are being decoded, then let go.

    This dirties the pool by simultaneous high water: whatever the allocator, pages that were in use at
    the same time are different pages.
    """

    do: Literal["fill"]
    group: str
    tokens: str
    """How much of the decode pool to have in use at once, output included."""
    longest: str
    """Longest single prompt."""
    output: int = 8_192
    """Output budget of each: they are held, not read to the end."""

    _check = field_validator("tokens", "longest")(_checked)


class Read(_Strict):
    """Send prompts of one length and ask for their labels, one position first in each."""

    do: Literal["read"]
    group: str
    tokens: str
    control: bool = False
    """A control group: known-good conditions that the others are compared with."""
    count: int = Field(default=3, ge=1, le=64)
    when: str = "1"
    """Only when this is known and not 0."""
    bystanders: int = Field(default=0, ge=0, le=16)
    """Short honest requests of another tenant sent at the same time."""

    _check = field_validator("tokens", "when")(_checked)


Step = Annotated[Fill | Read, Field(discriminator="do")]


class Probe(_Strict):
    """A scenario with its reasons."""

    id: str
    title: str
    mechanism: tuple[str, ...]
    why: str
    references: tuple[str, ...] = ()
    blind_to: str
    output: int = Field(default=160, ge=16)
    """Output budget of a reader, in tokens."""
    steps: tuple[Step, ...]


class Suite(_Strict):
    """Which probes run and which claims have to hold."""

    id: str
    title: str
    probes: tuple[str, ...]
    requires: tuple[ClaimName, ...]


Model = TypeVar("Model", Probe, Suite)


def load_probe(identifier: str) -> Probe:
    """A shipped probe by its id."""
    return _load(Probe, data_path("probes"), identifier)


def load_suite(identifier: str) -> Suite:
    """A shipped suite by its id."""
    return _load(Suite, data_path("suites"), identifier)


def _load(model: type[Model], folder: Path, identifier: str) -> Model:
    path = folder / f"{identifier}.yaml"
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
        return model.model_validate(data)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise ConfigError(f"There is no {path.name} in {folder}; there are: {known}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {place}: {first['msg']}") from None

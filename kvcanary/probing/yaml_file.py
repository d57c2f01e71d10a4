"""Strict YAML: every error names file, line, column and, for a misspelt word, the nearest valid one."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kvcanary.errors import ConfigError
from kvcanary.probing.tracebacks import Unseen

MAX_BYTES = 1_000_000
"""No probe, suite or deployment file is anywhere near this size."""
MAX_VALUES = 20_000
"""Nor has one so many values, each repetition by an alias counted: a few lines of aliases make billions."""
MAX_DEPTH = 50
MAX_SHOWN = 60
"""Characters of a wrong value that an error repeats."""

_NUMBERS = {1: "one is", 2: "two are"}
_KINDS = {
    "keys with values are needed: `key: value`": (
        "model_type",
        "dict_type",
        "model_attributes_type",
    ),
    "a list is needed: `[one, two]`": ("tuple_type",),
    "text is needed": ("string_type",),
    "`true` or `false` is needed": ("bool_type", "bool_parsing"),
    "a whole number is needed": ("int_type", "int_parsing", "int_from_float"),
    "a number is needed": ("float_type", "float_parsing"),
}
_NEEDED = {kind: words for words, kinds in _KINDS.items() for kind in kinds}
"""What to say of a value of another kind, by pydantic's word for it."""
_DOLLAR = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<wrong>))")
_STRING = "tag:yaml.org,2002:str"

Model = TypeVar("Model", bound=BaseModel)
Path_ = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    line: int
    column: int


class FromVariable(str):
    """A value that holds an environment variable's: no message, traceback or ``repr`` shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


Variables = Callable[[str], str | None]
"""An environment variable by its name; None where there is none. A function: its ``repr`` shows no value."""


def load_yaml(path: Path, model: type[Model], variables: Variables | None = None) -> Model:
    """Read and validate one file. Raises ConfigError with ``file:line:column: what is wrong``.

    Args:
        variables: what ``${NAME}`` in a value stands for (``$$`` is a dollar); None leaves dollars alone.

    Validators are given the file's folder as their context.
    """
    with Unseen():
        return _loaded(path, model, variables)


def _loaded(path: Path, model: type[Model], variables: Variables | None) -> Model:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes.")
    try:
        loader = yaml.SafeLoader(raw.decode("utf-8"))
        node = loader.get_single_node()
        places = _places(node, path) if node else {}
        if node and variables is not None:
            _replace_variables(node, path, variables)
        data = loader.construct_document(node) if node else None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: not valid YAML: {error.problem}.") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}.") from None
    try:
        return model.model_validate(data, context=path.parent)
    except ValidationError as error:
        details = error.errors()
        inner = [d for d in details if not any(_holds(d, other) for other in details)]
        inner.sort(key=lambda d: d["type"] == "missing")  # what is misspelt is missing, too
        lines = [_told(path, detail, places, model) for detail in inner[:5]]
        raise ConfigError("\n".join(lines)) from None


def variables_in(path: Path) -> frozenset[str]:
    """Environment variables that a file names; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return frozenset()
    return frozenset(m["name"] for m in _DOLLAR.finditer(text) if m["name"])


def _places(node: yaml.Node, path: Path) -> dict[Path_, _Place]:
    """Where each value stands; the place of a mapping's entry is that of its key."""
    places: dict[Path_, _Place] = {}
    todo: list[tuple[yaml.Node, Path_, _Place]] = [(node, (), _place(node))]
    while todo:
        value, at, place = todo.pop()
        places[at] = place
        if len(places) > MAX_VALUES or len(at) > MAX_DEPTH:
            raise ConfigError(f"{path}: too many values, or nested too deeply (aliases included).")
        if isinstance(value, yaml.SequenceNode):
            todo += [(item, (*at, i), _place(item)) for i, item in enumerate(value.value)]
        elif isinstance(value, yaml.MappingNode):
            todo += [(v, (*at, name), here) for name, v, here in _entries(value, path)]
    return places


def _replace_variables(root: yaml.Node, path: Path, variables: Variables) -> None:
    """Put variables into values, never into keys. Raises ConfigError that names those that are missing."""
    wrong: list[str] = []
    done: set[int] = set()  # an alias is the very node of its anchor
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in done:
            continue
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += reversed(node.value)
        elif isinstance(node, yaml.MappingNode):
            todo += [value for _, value in reversed(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.tag == _STRING and "$" in node.value:
            names = [m["name"] for m in _DOLLAR.finditer(node.value) if m["name"]]
            place = _place(node)
            where = f"{path}:{place.line}:{place.column}"
            if any(m["wrong"] is not None for m in _DOLLAR.finditer(node.value)):
                wrong.append(
                    f"{where}: `$` begins a variable: write `${{NAME}}`, or `$$` for a dollar."
                )
            wrong += [
                f"{where}: the environment variable {name} is not set, or is empty."
                for name in names
                if not variables(name)
            ]
            if not wrong:
                text = _DOLLAR.sub(
                    lambda m: "$" if m["dollar"] else variables(m["name"]) or "", node.value
                )
                node.value = FromVariable(text) if names else text
    if wrong:
        raise ConfigError("\n".join(wrong[:5]))


def _entries(node: yaml.MappingNode, path: Path) -> Iterable[tuple[str, yaml.Node, _Place]]:
    """Name, value and place of each entry. Raises ConfigError for a key that is none, or is there twice."""
    seen: set[str] = set()
    for key, value in node.value:
        place = _place(key)
        where = f"{path}:{place.line}:{place.column}"
        if not isinstance(key, yaml.ScalarNode) or key.tag not in _KEY_TAGS:
            raise ConfigError(f"{where}: a key has to be a word.")
        if key.value in seen:
            raise ConfigError(f"{where}: `{key.value}` is given twice.")
        seen.add(key.value)
        yield key.value, value, place


def _place(node: yaml.Node) -> _Place:
    return _Place(node.start_mark.line + 1, node.start_mark.column + 1)


_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


def _holds(outer: ErrorDetails, inner: ErrorDetails) -> bool:
    """An error of a whole list or mapping that only follows from one inside it."""
    at, within = outer["loc"], inner["loc"]
    return len(within) > len(at) and within[: len(at)] == at


def _told(
    path: Path, detail: ErrorDetails, places: dict[Path_, _Place], model: type[BaseModel]
) -> str:
    location = _in_file(detail["loc"], places)
    place = _nearest_place(location, places)
    name = ".".join(map(str, location)) or "the file"
    return f"{path}:{place.line}:{place.column}: {name}: {_message(detail, model)}"


def _in_file(location: Path_, places: dict[Path_, _Place]) -> Path_:
    """Pydantic names the branch of a union in the location; a file does not."""
    found: Path_ = ()
    for part in location[:-1]:
        found = (*found, part) if (*found, part) in places else found
    return (*found, *location[-1:])


def _nearest_place(location: Path_, places: dict[Path_, _Place]) -> _Place:
    while location and location not in places:
        location = location[:-1]
    return places.get(location, _Place(1, 1))


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    hidden = isinstance(detail["input"], FromVariable)
    match detail["type"]:
        case "extra_forbidden":
            name = str(detail["loc"][-1])
            valid = sorted(_fields(model, detail["loc"][:-1]))
            return f"there is no such key{_suggestion(name, valid)}"
        case "missing":
            return "this key is missing"
        case "union_tag_invalid":
            tags = [t.strip("'") for t in str(detail["ctx"]["expected_tags"]).split(", ")]
            tag = str(detail["ctx"]["tag"])
            return f"`{_shown(tag)}` is not a kind of step{_suggestion(tag, tags)}"
        case "too_short":
            least = detail["ctx"]["min_length"]
            return f"at least {_NUMBERS.get(least, least)} needed"
        case "union_tag_not_found":
            return f"the key {detail['ctx']['discriminator'].replace(chr(39), '`')} is missing"
        case "enum" | "literal_error":
            valid = [
                v.strip("'") for v in detail["ctx"]["expected"].replace(" or ", ", ").split(", ")
            ]
            if hidden:
                return f"the variable's value is not one of them (valid: {', '.join(valid)})"
            given = str(detail["input"])
            return f"`{_shown(given)}` is not one of them{_suggestion(given, valid)}"
        case "value_error":
            return str(detail["ctx"]["error"])
    return _NEEDED.get(detail["type"]) or detail["msg"][:1].lower() + detail["msg"][1:]


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _suggestion(name: str, valid: list[str]) -> str:
    if not valid:
        return ""
    nearest = difflib.get_close_matches(name, valid, n=1, cutoff=0.0)
    return f"; did you mean `{nearest[0]}`? (valid: {', '.join(valid)})" if nearest else ""


def _fields(model: Any, location: Path_) -> set[str]:
    """Names of the keys that may stand at ``location`` of a model."""
    if not location:
        return set(model.model_fields) if _is_model(model) else set()
    first, rest = location[0], location[1:]
    if _is_model(model):
        field = model.model_fields.get(str(first))
        return _fields(field.annotation, rest) if field else set()
    inner = get_args(model)
    if get_origin(model) is Annotated:
        return _fields(inner[0], location)
    if get_origin(model) in (Union, UnionType):
        for branch in inner:
            tags = [get_args(f.annotation) for f in getattr(branch, "model_fields", {}).values()]
            if any(first in tag for tag in tags if tag):
                return _fields(branch, rest)
        return set().union(*(_fields(branch, location) for branch in inner))
    item = next((t for t in inner if t is not Ellipsis), None)
    return _fields(item, rest) if item is not None else set()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)

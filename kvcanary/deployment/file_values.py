"""Kinds of values in a deployment file: secrets, files, URLs, headers, body fields, labels.

A complaint is a ``ValueError`` without the value: ``yaml_file`` adds file, line and column.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema

from kvcanary.errors import UsageError
from kvcanary.probing.endpoint import RESERVED_FIELDS, SecretKey, check_headers, normalised_url
from kvcanary.probing.yaml_file import FromVariable

MAX_KEY_BYTES = 16_384

Headers = tuple[tuple[str, SecretKey], ...]


def _secret(value: object) -> SecretKey:
    if isinstance(value, SecretKey):
        return value
    if not isinstance(value, str):
        raise ValueError("text is needed: put quotes around it")  # noqa: TRY004 - pydantic's way
    try:
        return SecretKey(str(value))
    except UsageError:
        raise ValueError(
            "it is empty, or has spaces around it, line breaks or characters outside ASCII"
        ) from None


def _kept_out(value: object) -> SecretKey:
    """A secret that may not stand in the file itself."""
    if not isinstance(value, FromVariable | SecretKey):
        raise ValueError(  # noqa: TRY004 - pydantic's way
            "a secret is not written into the file: name a variable, `${NAME}` (keys and tokens may also lie "
            "in a file: `key_file`, `token_file`)"
        )
    return _secret(value)


def _url(value: str) -> str:
    try:
        return normalised_url(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _file(value: str, info: ValidationInfo) -> str:
    """A readable file, its path seen from the deployment file's folder."""
    path = Path(info.context or ".") / Path(value).expanduser()
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    return str(path)


def _secret_in(value: object, info: ValidationInfo) -> SecretKey:
    """The secret that a file holds, less the line break at its end."""
    if not isinstance(value, str):
        raise ValueError("the path of a file is needed")  # noqa: TRY004 - pydantic's way
    path = Path(_file(value, info))
    with path.open("rb") as file:
        raw = file.read(MAX_KEY_BYTES + 1)
    if len(raw) > MAX_KEY_BYTES:
        raise ValueError(f"{path} has more than {MAX_KEY_BYTES:,} bytes: it is no key")
    try:
        return _secret(raw.decode("ascii").removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} has characters outside ASCII: it is no key") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _headers(value: object) -> Headers:
    if not isinstance(value, Mapping):
        raise ValueError("a mapping is needed: `name: value`")  # noqa: TRY004 - pydantic's way
    found = []
    for name, text in value.items():
        try:
            found.append((str(name), _secret(text)))
        except ValueError as error:
            raise ValueError(f"the value of `{name}`: {error}") from None
    try:
        check_headers(found)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return tuple(found)


def _body(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise ValueError("a mapping is needed: `name: value`")  # noqa: TRY004 - pydantic's way
    for name in value:
        if name in RESERVED_FIELDS:
            raise ValueError(f"`{name}` is set by kvcanary itself: leave it out")
    try:
        return tuple((str(name), json.dumps(item, allow_nan=False)) for name, item in value.items())
    except (TypeError, ValueError):
        raise ValueError(
            "it holds something that JSON cannot say, such as a date or .nan"
        ) from None


def _labels(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise ValueError("a mapping of labels to text is needed: `job: llm`")
    return tuple((str(name), str(text)) for name, text in value.items())


_TEXT = WithJsonSchema({"type": "string"})
_MAPPING = WithJsonSchema({"type": "object"})
_TEXTS = WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}})

Secret = Annotated[SecretKey, PlainValidator(_kept_out), _TEXT]
Private = Annotated[SecretKey, PlainValidator(_secret), _TEXT]
SecretFile = Annotated[SecretKey, PlainValidator(_secret_in), _TEXT]
FilePath = Annotated[str, AfterValidator(_file)]
Url = Annotated[str, AfterValidator(_url)]
HeaderMap = Annotated[Headers, PlainValidator(_headers), _TEXTS]
BodyMap = Annotated[tuple[tuple[str, str], ...], PlainValidator(_body), _MAPPING]
LabelMap = Annotated[tuple[tuple[str, str], ...], PlainValidator(_labels), _TEXTS]
Name = Annotated[str, Field(min_length=1, max_length=200)]

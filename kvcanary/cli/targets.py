"""What a target is: a URL, ``lab:NAME[?context=N&front_door_only&seed=N]`` started for the run, or the
path of a deployment file; and the options that say how it is reached."""

import asyncio
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import click

from kvcanary.cli import names
from kvcanary.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from kvcanary.deployment.target import Target
    from kvcanary.probing.endpoint import SecretKey

LAB = "lab:"
LAB_SOURCE = "the lab's scenario"
TARGET = "URL|FILE|lab:NAME"
KEY_VARIABLE = "KVCANARY_API_KEY"
MAX_CONTEXT = 1 << 30
FILE_SUFFIXES = (".yaml", ".yml")
START_SECONDS = 60.0
END_SECONDS = 5.0
_OPTIONS = {
    "context": "--context",
    "seed": "--seed",
    "front_door_only": "--front-door-only",
    "free_list": "--free-list",
    "routing": "--routing",
    "habit": "--habit",
    "fault": "--fault",
    "dialect": "--dialect",
    "truth": "--truth",
}


@dataclass(frozen=True, slots=True)
class Connection:
    """What the command line says of a target. What is None is as the deployment file says, or the default."""

    target: str
    model: str | None = None
    context_tokens: int | None = None
    api: str | None = None
    stream: bool | None = None
    api_key_env: str | None = None
    ca_file: str | None = None
    trust_env: bool = False
    trust_discovered: bool = False
    nvml: bool = False


_REACH_OPTIONS = (
    click.option(
        "--api-key-env",
        metavar="VARIABLE",
        help="Environment variable that holds the API key.  [default: the deployment file's key, else "
        f"{KEY_VARIABLE}]",
    ),
    click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False),
        help="PEM file of a private CA.",
    ),
    click.option("--trust-env", is_flag=True, help="Take proxies from the environment."),
    click.option(
        "--trust-discovered",
        is_flag=True,
        help="Send the API key to workers that the front door names, too.",
    ),
)
"""How a target is reached, wherever it is named."""

_TARGET_OPTIONS = (
    click.argument("target", metavar=TARGET, shell_complete=names.targets),
    click.option("--model", help="Model to test. Default: the only one that the server lists."),
    click.option(
        "--context",
        "context_tokens",
        type=click.IntRange(1, MAX_CONTEXT),
        metavar="TOKENS",
        help="Context limit that the deployment promises. Default: what the server tells.",
    ),
    click.option(
        "--api",
        type=click.Choice(["chat", "completions"]),
        help="Which OpenAI-compatible call to use.  [default: chat]",
    ),
    click.option(
        "--stream/--no-stream", default=None, help="Ask for streamed answers.  [default: stream]"
    ),
    *_REACH_OPTIONS,
    click.option(
        "--nvml",
        is_flag=True,
        help="The GPUs of this machine are the deployment's: read them through the driver.",
    ),
)


def reach_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options that say how a target is reached, under the names of ``Connection``."""
    for option in reversed(_REACH_OPTIONS):
        command = option(command)
    return command


def target_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the argument TARGET and its options, and hands them over as ``connection``."""

    @functools.wraps(command)
    def with_connection(**values: object) -> int:
        mine = {name: values.pop(name) for name in Connection.__dataclass_fields__}
        return command(connection=Connection(**mine), **values)  # type: ignore[arg-type]

    for option in reversed(_TARGET_OPTIONS):
        with_connection = option(with_connection)
    return with_connection


@asynccontextmanager
async def opened(connection: Connection) -> "AsyncIterator[Target]":
    """The target, with its lab running for as long as the context lasts.

    Its model is ``UNNAMED`` where neither the command line nor the target names one.
    """
    if not connection.target.startswith(LAB):
        yield _with(connection, _named(connection.target))
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvcanary",
        "lab",
        "serve",
        "--announce",
        *_arguments(connection.target),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield _with(connection, await _announced(process, connection.target))
    finally:
        await _end(process)


def known_beforehand(connection: Connection) -> "Target":
    """What is known of a target without asking anybody. A lab has no address then."""
    if not connection.target.startswith(LAB):
        return _with(connection, _named(connection.target))
    from kvcanary.lab import scenario_named

    name, _, query = connection.target.removeprefix(LAB).partition("?")
    _arguments(connection.target)
    context = dict(parse_qsl(query)).get("context", str(scenario_named(name).context_tokens))
    if not (context.isascii() and context.isdigit()):
        raise UsageError(f"`{connection.target}`: a context is a number of tokens.")
    found = _bare(connection.target, "http://lab.invalid/v1")
    return _with(connection, replace(found, context_tokens=int(context), context_source=LAB_SOURCE))


def _named(target: str) -> "Target":
    """A URL, or a deployment file. What is neither is not repeated: it may be a URL with a password."""
    from kvcanary.cli.explain import require_known
    from kvcanary.deployment.file import load_deployment

    path = Path(target)
    is_file = "://" not in target and (path.suffix in FILE_SUFFIXES or path.exists())
    if not is_file:
        if "://" not in target:
            raise UsageError(
                "TARGET is no http(s) URL, no lab:NAME and no deployment file that exists. "
                "Give http(s)://HOST[:PORT]/v1, or make a file with `kvcanary init URL`."
            )
        return _bare(target, target)
    found = load_deployment(path).target(target)
    try:
        require_known(waiver.rule for waiver in found.waivers)
    except UsageError as error:
        raise ConfigError(f"{path}: waivers: {error}") from None
    return found


def _bare(name: str, base_url: str) -> "Target":
    from kvcanary.deployment.target import Target
    from kvcanary.probing.endpoint import UNNAMED, Endpoint

    return Target(name, Endpoint(base_url, UNNAMED))


def _with(connection: Connection, target: "Target") -> "Target":
    """The target with what the command line says: that comes first."""
    from kvcanary.deployment.target import GpuReader, GpuSource
    from kvcanary.probing.endpoint import Api

    endpoint = target.endpoint
    if connection.model:
        endpoint = replace(endpoint, model=connection.model)
    if connection.api:
        endpoint = replace(endpoint, api=Api(connection.api))
    if connection.stream is not None:
        endpoint = replace(endpoint, stream=connection.stream)
    if connection.ca_file:
        endpoint = replace(endpoint, ca_file=connection.ca_file)
    if connection.api_key_env or endpoint.api_key is None:
        endpoint = replace(endpoint, api_key=_key(connection.api_key_env))
    if connection.context_tokens is not None:
        target = replace(
            target, context_tokens=connection.context_tokens, context_source="--context"
        )
    gpus = target.gpus
    if connection.nvml and not any(source.reader is GpuReader.NVML for source in gpus):
        gpus = (*gpus, GpuSource(GpuReader.NVML))
    return replace(
        target,
        endpoint=replace(endpoint, trust_env=endpoint.trust_env or connection.trust_env),
        gpus=gpus,
        trust_discovered=target.trust_discovered or connection.trust_discovered,
    )


def _key(variable: str | None) -> "SecretKey | None":
    from kvcanary.probing.endpoint import SecretKey

    name = variable or KEY_VARIABLE
    return SecretKey(os.environ[name]) if os.environ.get(name) else None


def secret_variables(connection: Connection) -> frozenset[str]:
    """Environment variables that hold keys: the API key's, a pushgateway's, those that a deployment file names.

    No other command gets them, but for what any command needs.
    """
    from kvcanary.probing.yaml_file import variables_in
    from kvcanary.report.deliver import GATEWAY_CREDENTIALS

    path = Path(connection.target)
    named = variables_in(path) if path.suffix in FILE_SUFFIXES else frozenset()
    keys = {KEY_VARIABLE, connection.api_key_env or KEY_VARIABLE, GATEWAY_CREDENTIALS}
    return (named | keys) - {"HOME", "PATH"}


async def _announced(process: asyncio.subprocess.Process, target: str) -> "Target":
    assert process.stdout is not None  # noqa: S101 - asked for above
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
    except TimeoutError:
        line = b""
    try:
        said = json.loads(line)
    except ValueError:
        reason = await _complaint(process)
        raise UsageError(f"{target} did not start. {reason}") from None
    found = _bare(target, f"{said['url']}/v1")
    return replace(
        found,
        endpoint=replace(found.endpoint, model=said["model"]),
        context_tokens=said["context_tokens"],
        context_source=LAB_SOURCE,
    )


async def _complaint(process: asyncio.subprocess.Process) -> str:
    """What the lab, our own process, said before it ended."""
    await _end(process)
    assert process.stderr is not None  # noqa: S101 - asked for above
    text = (await process.stderr.read()).decode(errors="replace").strip()
    return text.rpartition("Error: ")[2] or "See `kvcanary lab list`."


async def _end(process: asyncio.subprocess.Process) -> None:
    """The lab ends with its standard input."""
    if process.stdin:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def _arguments(target: str) -> list[str]:
    name, _, query = target.removeprefix(LAB).partition("?")
    arguments = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        option = _OPTIONS.get(key)
        if option is None:
            raise UsageError(f"`{target}`: a lab takes {', '.join(_OPTIONS)}, not `{key}`.")
        arguments += [option] if key == "front_door_only" else [option, value]
    return [*arguments, "--", name]

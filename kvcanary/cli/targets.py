"""What a target is: a URL, or ``lab:NAME[?context=N&front_door_only&seed=N]`` started for the run."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl

from kvcanary.errors import UsageError

LAB = "lab:"
START_SECONDS = 60.0
END_SECONDS = 5.0
_OPTIONS = {
    "context": "--context",
    "seed": "--seed",
    "front_door_only": "--front-door-only",
    "free_list": "--free-list",
    "routing": "--routing",
    "habit": "--habit",
}


@dataclass(frozen=True, slots=True)
class Place:
    """An opened target. ``model`` and ``context_tokens`` are known for the lab only."""

    name: str
    base_url: str
    model: str | None = None
    context_tokens: int | None = None


@asynccontextmanager
async def opened(target: str) -> AsyncIterator[Place]:
    """The target, with its lab running for as long as the context lasts."""
    if not target.startswith(LAB):
        yield Place(target, target)
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvcanary",
        "lab",
        "serve",
        "--announce",
        *_arguments(target),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield await _announced(process, target)
    finally:
        await _end(process)


async def _announced(process: asyncio.subprocess.Process, target: str) -> Place:
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
    return Place(target, f"{said['url']}/v1", said["model"], said["context_tokens"])


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

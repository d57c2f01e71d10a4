"""The real command as a process of its own, with a state folder and a site key of its own."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvcanary.record.journal import load
from kvcanary.record.run import RunRecord
from tests.probing.rogue_server import Call, Handler, rogue_server, run, sse

COMMAND = (sys.executable, "-W", "error", "-m", "kvcanary")
GUARD_SECONDS = 120
"""A process that is still there has hung. Nothing is expected to come near it."""


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Both streams with white space made single, for messages that wrap."""
        return " ".join(f"{self.out} {self.err}".split())


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, less what steers kvcanary and terminals, plus a state of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not re.match(r"KVCANARY_|COLUMNS$|LINES$|NO_COLOR$|FORCE_COLOR$|TERM$|.*_proxy$", name)
    }
    own = {
        "KVCANARY_STATE_DIR": str(folder / "state"),
        "KVCANARY_SITE_KEY_FILE": str(folder / "site.key"),
    }
    return {**kept, **own, **(extra or {})}


def kvcanary(folder: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> Ended:
    """Run a command to its end."""
    ended = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        env=environment(folder, extra),
        stdin=subprocess.DEVNULL,
        timeout=GUARD_SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def records(folder: Path) -> list[Path]:
    """The records, whole and partial, that runs left in the default place."""
    return sorted((folder / "state" / "runs").glob("*.jsonl*"))


def only_record(folder: Path) -> RunRecord:
    """The one record there is; reading it is part of the test."""
    (path,) = records(folder)
    return load(path)


def check_against(
    handler: Handler, folder: Path, *arguments: str, extra: Mapping[str, str] | None = None
) -> Ended:
    """``kvcanary check`` against a server that answers with ``handler``."""
    (ended,) = against(handler, folder, ["check", "URL", *arguments], extra=extra)
    return ended


def against(
    handler: Handler, folder: Path, *commands: list[str], extra: Mapping[str, str] | None = None
) -> list[Ended]:
    """Commands one after the other against one server; ``URL`` among their words is its base URL."""

    async def one(words: list[str], url: str) -> Ended:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *(url if word == "URL" else word for word in words),
            env=environment(folder, extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), GUARD_SECONDS)
        assert process.returncode is not None
        encoding = (extra or {}).get("PYTHONIOENCODING", "utf-8")
        return Ended(process.returncode, out.decode(encoding), err.decode(encoding))

    async def exchange() -> list[Ended]:
        async with rogue_server(handler) as server:
            return [await one(words, server.base_url) for words in commands]

    return run(exchange())


def front_door(completions: Handler) -> Handler:
    """A server that lists the model ``tiny`` and no workers; ``completions`` answers the prompts."""

    async def handler(call: Call) -> None:
        if call.method == "POST":
            await completions(call)
        elif call.path == "/v1/models":
            await call.answer(200, b'{"object":"list","data":[{"id":"tiny","object":"model"}]}')
        else:
            await call.answer(404, b'{"detail":"Not Found"}')

    return handler


def counted(call: Call) -> int:
    """Prompt tokens: words, for a vocabulary in which each is one."""
    return len(call.fields["messages"][0]["content"].split())


async def tell(call: Call, *events: object) -> None:
    """A stream from beginning to end."""
    await call.start_stream()
    await call.say(sse(*events))
    call.hang_up()

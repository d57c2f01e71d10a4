"""``kvcanary lab``: the deployment in a box, on its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kvcanary.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from kvcanary.lab import Lab, Scenario

_USAGE_EXIT = 2


@click.group()
def lab() -> None:
    """The deployment in a box: it leaks for the real reason, or does not."""


@lab.command("list")
def list_scenarios() -> None:
    """What the lab can be, and what `kvcanary check` should say about it."""
    from rich.console import Console
    from rich.table import Table

    from kvcanary.lab import scenarios

    table = Table("scenario", "tokens", "what is wrong", "what check should say", show_lines=True)
    table.columns[1].no_wrap = True
    for scenario in scenarios():
        sizes = (
            f"context {scenario.context_tokens:>11,}\n"
            f"prefill {scenario.prefill.pool_tokens:>11,}\n"
            f"decode  {scenario.decode.pool_tokens:>11,}"
        )
        table.add_row(scenario.name, sizes, scenario.wrong, scenario.check_says)
    Console().print(table)


@lab.command()
@click.argument("name")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Front door; 0 for any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--context", type=click.IntRange(min=512), help="Scale to this context limit.")
@click.option("--seed", type=int, default=0, show_default=True, help="The model's chances.")
@click.option("--front-door-only", is_flag=True, help="No workers' ports, no metrics.")
@click.option("--announce", is_flag=True, help="One JSON line when ready; ends with stdin.")
def serve(
    name: str,
    port: int,
    host: str,
    context: int | None,
    seed: int,
    front_door_only: bool,
    announce: bool,
) -> None:
    """Serve scenario NAME with router, prefill and decode on ports of their own, until Ctrl-C."""
    import asyncio

    from kvcanary.lab import Lab, scenario_named

    try:
        scenario = scenario_named(name)
        if context is not None:
            scenario = scenario.scaled(context_tokens=context)
        box = Lab(scenario, seed=seed, front_door_only=front_door_only, host=host, port=port)
        asyncio.run(_serve(box, announce=announce))
    except UsageError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_USAGE_EXIT)


async def _serve(box: Lab, *, announce: bool) -> None:
    import asyncio
    import signal

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with box:
        if announce:
            click.echo(_announcement(box))
            _watch_stdin(loop, ended)
        else:
            _introduce(box)
        await ended.wait()


def _watch_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set ``ended`` once whoever started this process closes its end of stdin."""
    import os
    import threading

    def wait() -> None:
        # the descriptor itself: a thread that holds the buffered reader's lock aborts the exit
        while os.read(sys.stdin.fileno(), 4096):
            pass
        try:
            loop.call_soon_threadsafe(ended.set)
        except RuntimeError:  # the loop ended first
            return

    threading.Thread(target=wait, daemon=True, name="stdin").start()


def _announcement(box: Lab) -> str:
    import json

    return json.dumps(
        {
            "url": box.url,
            "model": box.model_name,
            "context_tokens": box.scenario.context_tokens,
            "workers": [{"role": role, "url": url} for role, url in box.worker_urls],
        }
    )


def _introduce(box: Lab) -> None:
    scenario: Scenario = box.scenario
    click.echo(f"lab:{scenario.name}: {scenario.wrong}")
    click.echo(f"  front door  {box.url}")
    for role, url in box.worker_urls:
        click.echo(f"  {role:<10}  {url}")
    click.echo("try it:")
    click.echo(
        f"  kvcanary check {box.url}/v1 --model {box.model_name} --context "
        f"{scenario.context_tokens}"
    )
    click.echo("Ctrl-C ends it")

"""``kvcanary lab``: the deployment in a box, on its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from kvcanary.lab import Lab, Scenario


@click.group()
def lab() -> None:
    """The deployment in a box: it leaks for the real reason, or does not."""


@lab.command("list")
@click.option("--habits", "show_habits", is_flag=True, help="What a lab can be made to do.")
@click.option("--faults", "show_faults", is_flag=True, help="What can be wrong with a lab.")
def list_scenarios(show_habits: bool, show_faults: bool) -> None:
    """What the lab can be, and what `kvcanary check` should say about it."""
    from rich.table import Table

    from kvcanary.lab import habits, scenarios
    from kvcanary.report.console import Output

    if show_faults:
        _list_faults()
        return
    if show_habits:
        table = Table("habit", "of the", "what it does")
        table.columns[0].no_wrap = True
        for habit in habits():
            table.add_row(habit.usage, habit.where, habit.does)
        Output().print(table)
        return
    table = Table("scenario", "tokens", "what is wrong", "what check should say", show_lines=True)
    table.columns[1].no_wrap = True
    for scenario in scenarios():
        table.add_row(scenario.name, _sizes(scenario), scenario.wrong, scenario.check_says)
    Output().print(table)


def _list_faults() -> None:
    """A block for each: a table would have too many columns."""
    from kvcanary.lab import faults

    for fault in faults():
        click.echo(click.style(fault.key, bold=True) + f"  ({fault.mechanism})")
        for label, text in (
            ("where", fault.where),
            ("wrong", fault.wrong),
            ("needs", fault.needs),
            ("rate", f"{fault.usual_rate:g} at each opportunity, unless told"),
            ("caller sees", fault.caller_sees),
            ("check says", fault.check_says),
            ("references", ", ".join(fault.references)),
        ):
            click.echo(f"  {label:<11}  {text}")


def _sizes(scenario: Scenario) -> str:
    lines = [f"context {scenario.context_tokens:>11,}"]
    for role, shapes in (("prefill", scenario.prefill_shapes), ("decode", scenario.decode_shapes)):
        for shape in shapes:
            lines.append(f"{role:<7} {shape.pool_tokens:>11,}")
            lines += [f" + rank {tokens:>11,}" for tokens in shape.more_ranks]
    return "\n".join(lines)


@lab.command()
@click.argument("name")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Front door; 0 for any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--context", type=click.IntRange(min=512), help="Scale to this context limit.")
@click.option("--seed", type=int, default=0, show_default=True, help="The model's chances.")
@click.option(
    "--free-list",
    type=click.Choice(["lifo", "fifo", "sorted"]),
    help="How all pools reuse pages (the scenario's: lifo).",
)
@click.option(
    "--routing",
    type=click.Choice(["round_robin", "lockstep", "random", "least_load", "cache_aware"]),
    help="How the router spreads requests (the scenario's: round_robin).",
)
@click.option(
    "--habit",
    "habit_texts",
    metavar="KEY[=VALUE]",
    multiple=True,
    help="What it does besides; repeatable (see `kvcanary lab list --habits`).",
)
@click.option(
    "--fault",
    "fault_texts",
    metavar="KEY[:RATE][@TOKENS]",
    multiple=True,
    help="What is wrong besides; repeatable (see `kvcanary lab list --faults`).",
)
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, path_type=Path),
    help="At the end, write what really happened to each request here: one JSON object a line.",
)
@click.option(
    "--dialect",
    type=click.Choice(["sglang", "vllm"]),
    help="Whose API it speaks (the scenario's: mostly sglang).",
)
@click.option("--front-door-only", is_flag=True, help="No workers' ports, no metrics.")
@click.option("--announce", is_flag=True, help="One JSON line when ready; ends with stdin.")
def serve(
    name: str,
    port: int,
    host: str,
    context: int | None,
    seed: int,
    free_list: str | None,
    routing: str | None,
    habit_texts: tuple[str, ...],
    fault_texts: tuple[str, ...],
    truth: Path | None,
    dialect: str | None,
    front_door_only: bool,
    announce: bool,
) -> None:
    """Serve scenario NAME with router, prefill and decode on ports of their own, until Ctrl-C."""
    import asyncio
    from dataclasses import replace

    from kvcanary.lab import (
        Dialect,
        FreeListPolicy,
        Lab,
        Routing,
        scenario_named,
        with_fault,
        with_habit,
    )
    from kvcanary.verdict.claims import ExitCode

    try:
        scenario = scenario_named(name)
        if dialect is not None:
            scenario = scenario.speaking(Dialect(dialect))
        if context is not None:
            scenario = scenario.scaled(context_tokens=context)
        if free_list is not None:
            scenario = scenario.with_free_list(FreeListPolicy(free_list))
        if routing is not None:
            scenario = replace(scenario, routing=Routing(routing))
        for text in habit_texts:
            scenario = with_habit(scenario, text)
        for text in fault_texts:
            scenario = with_fault(scenario, text)
        box = Lab(scenario, seed=seed, front_door_only=front_door_only, host=host, port=port)
        asyncio.run(_serve(box, announce=announce))
        if truth is not None:
            _write_truth(box, truth)
    except UsageError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(ExitCode.COULD_NOT_RUN)


def _write_truth(box: Lab, path: Path) -> None:
    """Raises UsageError."""
    from kvcanary.lab import write_truth

    try:
        write_truth(path, box.truth.ledger)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from error


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
            "workers": [
                {"name": worker.name, "role": worker.role, "url": worker.url}
                for worker in box.workers
            ],
        }
    )


def _introduce(box: Lab) -> None:
    scenario: Scenario = box.scenario
    click.echo(f"lab:{scenario.name}: {scenario.wrong}")
    click.echo(f"  front door  {box.url}")
    for worker in box.workers:
        click.echo(f"  {worker.name} {worker.role:<7}  {worker.url}")
    click.echo("try it:")
    click.echo(
        f"  kvcanary check {box.url}/v1 --model {box.model_name} --context "
        f"{scenario.context_tokens}"
    )
    click.echo("Ctrl-C ends it")

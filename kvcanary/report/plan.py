"""The plan as a person reads it: what is sent, for what, at which price; what is left out."""

import math

from rich.console import Console
from rich.text import Text

from kvcanary.record.run import PlanNote, RunRecord
from kvcanary.report.tables import print_table, table


def print_plan(console: Console, note: PlanNote, record: RunRecord | None) -> None:
    """Write the plan. ``record``: the calibration behind it, where there was one."""
    rows = table("stratum", ">requests", ">each up to", ">tokens", ">time", "serves")
    for stage in note.stages:
        rows.add_row(
            f"  {stage.stratum}",
            str(stage.requests),
            f"{stage.longest_tokens:,}",
            f"{stage.prompt_tokens:,}",
            _duration(stage.seconds),
            stage.purpose,
        )
    print_table(console, rows)
    console.print(
        Text(
            f"\n{note.requests} requests, {note.prompt_tokens:,} prompt tokens, time {_duration(note.seconds)}"
        ),
        soft_wrap=True,
    )
    if note.overhead:
        _print_overhead(console, note)
    for skipped in note.skipped:
        console.print(Text(f"not in it: {skipped}", "yellow"), soft_wrap=True)
    calibration = record.calibration if record else None
    if calibration is None:
        console.print(Text("Nothing was measured: tokens are estimates, times unknown.", "dim"))
    elif calibration.first_token:
        fit = calibration.first_token
        console.print(
            Text(
                f"times from {fit.samples} first tokens of prompts up to {fit.longest_tokens:,} tokens: "
                f"{1e6 * fit.per_token_seconds:,.2f} s per million tokens (95 %: "
                f"{1e6 * fit.low_per_token_seconds:,.2f} to {1e6 * fit.high_per_token_seconds:,.2f}), "
                "stretched in a straight line",
                "dim",
            ),
            soft_wrap=True,
        )


def _print_overhead(console: Console, note: PlanNote) -> None:
    rows = table("besides", ">requests", ">at most", ">tokens", ">at most")
    for line in note.overhead:
        rows.add_row(
            f"  {line.what}",
            str(line.requests),
            str(line.most_requests),
            f"{line.prompt_tokens:,}",
            f"{line.most_prompt_tokens:,}",
        )
    print_table(console, rows)
    most = note.most_prompt_tokens
    console.print(
        Text(
            f"\nall together about {note.all_prompt_tokens:,} prompt tokens"
            + ("" if most is None else f"; never more than {most:,}")
        ),
        soft_wrap=True,
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"< {max(1, math.ceil(seconds))} s" if seconds < 120 else f"< {seconds / 60:.1f} min"

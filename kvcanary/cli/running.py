"""What ``check`` and ``plan`` share: what is run, what may be spent, and one run."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.cli.names import shipped_names
from kvcanary.cli.targets import Connection, opened, target_options
from kvcanary.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from kvcanary.canary.prompt import RunIdentity
    from kvcanary.record.baseline import Baseline
    from kvcanary.record.run import RunRecord
    from kvcanary.run import Result
    from kvcanary.verdict.waivers import Waiver


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of a run, as given on the command line."""

    suite: str
    probes: tuple[str, ...]
    tokens: int | None
    minutes: float | None
    tokens_per_minute: int | None
    concurrency: int
    deadline_seconds: float
    contact: str | None
    allow_intrusive: bool
    waivers: Path | None
    quiet: bool


def _finite(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """A range of click's lets `nan` and `inf` through: no plan can be held to them."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of them.")
    return value


def waivers_option(command: Callable[..., int]) -> Callable[..., int]:
    """``--waivers FILE``."""
    return click.option(
        "--waivers",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="YAML file of findings that are answered for until a day.",
    )(command)


def given_waivers(file: Path | None) -> "tuple[Waiver, ...]":
    """What the file waives. Raises UsageError for a rule that there is not."""
    from kvcanary.cli.explain import require_known
    from kvcanary.probing.yaml_file import load_yaml
    from kvcanary.verdict.waivers import Waivers

    waivers = load_yaml(file, Waivers).waivers if file else ()
    require_known(waiver.rule for waiver in waivers)
    return waivers


_OPTIONS = (
    click.option(
        "--suite",
        default="check",
        show_default=True,
        metavar="ID|FILE",
        shell_complete=shipped_names("suites"),
        help="What to run: see `kvcanary suites`; a suite of your own by its path.",
    ),
    click.option(
        "--probe",
        "probes",
        multiple=True,
        metavar="ID|FILE",
        shell_complete=shipped_names("probes"),
        help="Probe to run instead of the suite's own; may be given more than once.",
    ),
    click.option(
        "--tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="Prompt tokens that the plan may send. Default: the suite's.",
    ),
    click.option(
        "--minutes",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        metavar="M",
        help="Minutes that the plan may take. Default: the suite's.",
    ),
    click.option(
        "--tpm",
        "tokens_per_minute",
        type=click.IntRange(min=1),
        metavar="N",
        help="Tokens a minute that each API key allows: the run is paced to it.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1, 256),
        default=4,
        show_default=True,
        help="Most requests in flight, victims apart.",
    ),
    click.option(
        "--deadline",
        "deadline_seconds",
        type=click.FloatRange(min=0.1),
        callback=_finite,
        default=900.0,
        show_default=True,
        metavar="SECONDS",
        help="Longest wait for one request.",
    ),
    click.option(
        "--contact",
        metavar="TEXT",
        help="Whom to ask about the test: stands in every prompt. "
        "Default: whoever runs this endpoint.",
    ),
    click.option(
        "--allow-intrusive",
        is_flag=True,
        help="Let a suite that runs beside real traffic send what others may feel: fill the pool, drop prompts.",
    ),
    waivers_option,
    click.option("-q", "--quiet", is_flag=True, help="No progress on standard error."),
)


def run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options of a run and hands them over as ``choices``; those of its target as ``connection``."""

    @functools.wraps(command)
    def with_choices(**values: object) -> int:
        mine = {name: values.pop(name) for name in Choices.__dataclass_fields__}
        return command(choices=Choices(**mine), **values)  # type: ignore[arg-type]

    for option in reversed(_OPTIONS):
        with_choices = option(with_choices)
    return target_options(with_choices)


@dataclass(frozen=True, slots=True)
class Record:
    """A run's identity and where its record goes, known before it starts."""

    identity: "RunIdentity"
    path: Path


def new_record(path: Path | None) -> Record:
    """A new run's identity; ``path`` as given, or a new file in the user's state folder."""
    from kvcanary.run import default_record_path, new_identity

    now = time.time()
    identity = new_identity(now)
    return Record(identity, path or default_record_path(identity, now))


def resumed_record(cut_off: Path) -> "tuple[Record, RunRecord]":
    """A run that was cut off: the same text, and a record beside it that takes it over.

    Raises UsageError when it cannot go on: complete, or made with another site key.
    """
    from kvcanary.canary.prompt import RunIdentity
    from kvcanary.canary.sitekey import load_or_create
    from kvcanary.record.journal import PARTIAL, load

    earlier = load(cut_off)
    if earlier.verdict is not None:
        raise UsageError(f"{cut_off} is complete: see `kvcanary report {cut_off}`.")
    if load_or_create().fingerprint() != earlier.info.site_key:
        raise UsageError(
            f"{cut_off} was made with another site key: its text cannot be written again here. "
            "Set KVCANARY_SITE_KEY_FILE to the key it was made with."
        )
    name = cut_off.name.removesuffix(PARTIAL).removesuffix(".jsonl") + "-resumed.jsonl"
    try:
        identity = RunIdentity(earlier.info.run, bytes.fromhex(earlier.info.nonce))
    except ValueError:
        raise ConfigError(f"{cut_off} was not written by kvcanary: its nonce is none.") from None
    return Record(identity, cut_off.with_name(name)), earlier


async def run(
    connection: Connection,
    choices: Choices,
    record: Record,
    *,
    only_plan: bool = False,
    resume: "RunRecord | None" = None,
    known: "tuple[RunRecord, ...]" = (),
    baseline: "Baseline | None" = None,
    turn: int = 0,
) -> "Result":
    """One run as chosen, with its lab if it has one."""
    from kvcanary.probing.buying import Budget
    from kvcanary.report.progress import progress
    from kvcanary.run import DEFAULT_CONTACT, Options, resolve_model, run_check

    waivers = given_waivers(choices.waivers)
    options = Options(
        suite=choices.suite,
        probes=choices.probes,
        concurrency=choices.concurrency,
        deadline_seconds=choices.deadline_seconds,
        contact=choices.contact or DEFAULT_CONTACT,
        budget=Budget(
            tokens=choices.tokens,
            seconds=None if choices.minutes is None else 60.0 * choices.minutes,
            tokens_per_minute=choices.tokens_per_minute,
        ),
        only_plan=only_plan,
        allow_intrusive=choices.allow_intrusive,
        turn=turn,
        resume=resume,
        known=known,
        baseline=baseline,
        record=record.path,
        identity=record.identity,
    )
    async with opened(connection) as found:
        target = await resolve_model(replace(found, waivers=(*found.waivers, *waivers)))
        with progress(quiet=choices.quiet) as listener:
            return await run_check(target, options, listener)

"""``--baseline RECORD``: an earlier run to compare the deployment with."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.errors import ConfigError

if TYPE_CHECKING:
    from kvcanary.record.baseline import Baseline


def _loaded(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> "Baseline | None":
    if path is None:
        return None
    from kvcanary.record.baseline import Baseline
    from kvcanary.record.journal import load

    record = load(path)
    if record.facts is None:
        raise ConfigError(
            f"{path} knows nothing of its deployment: that run ended before it had asked. Give another record."
        )
    info = record.info
    return Baseline(
        run=info.run, site_key=info.site_key, started_at=info.started_at, facts=record.facts
    )


def baseline_option(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the option, and hands over what the record says."""
    return click.option(
        "--baseline",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="RECORD",
        callback=_loaded,
        help="Record of an earlier run (check or capacity): say what is different. A pool that shrank by more "
        "than 1 % fails.",
    )(command)

"""Names that a shell completes: probes, suites, labs, things to explain."""

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _or_file(names: Iterable[str], begun: str) -> list[CompletionItem]:
    """Names that begin so; a file where none does."""
    known = [CompletionItem(name) for name in names if name.startswith(begun)]
    return known or [CompletionItem(begun, type="file")]


def shipped_names(folder: str) -> Completer:
    """Of what is shipped in ``probes`` or ``suites``, or a file of one's own."""

    def complete(_ctx: Any, _param: Any, begun: str) -> list[CompletionItem]:
        from kvcanary.data import data_path

        return _or_file(sorted(path.stem for path in data_path(folder).glob("*.yaml")), begun)

    return complete


def targets(_ctx: Any, _param: Any, begun: str) -> list[CompletionItem]:
    """Labs by their names, or a deployment file."""
    from kvcanary.lab.scenario import scenario_names

    return _or_file((f"lab:{name}" for name in scenario_names()), begun)

"""``kvcanary init``: write a deployment file from what the front door tells."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvcanary.cli.targets import KEY_VARIABLE, Connection, opened, target_options
from kvcanary.errors import UsageError

if TYPE_CHECKING:
    from kvcanary.deployment.template import Found

SCHEMA = "deployment.schema.json"


@click.command(short_help="Write a deployment file for a URL.")
@target_options
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("kvcanary.yaml"),
    show_default=True,
    metavar="FILE",
    help="Where it goes.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(connection: Connection, path: Path, force: bool) -> int:
    """Ask the front door at TARGET, a URL, what it serves and write a deployment file for it.

    What could not be found out stands there as a comment that says how to find it. The file holds no key: it
    names the variable that does. No prompt is sent.

    \b
    Examples:
      kvcanary init https://llm.example.com/v1
      kvcanary check kvcanary.yaml
    """
    from kvcanary.deployment.template import deployment_text
    from kvcanary.report.files import write_atomically

    if "://" not in connection.target:
        raise UsageError("`kvcanary init` takes the URL of a front door: http(s)://HOST[:PORT]/v1.")
    there = UsageError(
        f"{path} is there already. Name another with -o, or replace it with --force."
    )
    if path.exists() and not force:
        raise there
    found = asyncio.run(_found(connection))
    try:
        write_atomically(path, deployment_text(found), 0o600, replace=force)
    except FileExistsError:
        raise there from None
    click.echo(f"wrote {path}")
    for note in found.notes:
        click.echo(f"note: {note}")
    if found.model is None:
        click.echo("first: say in it which model to test")
    if found.needs_key:
        click.echo(f"the key is read from {found.key_variable}")
    click.echo(f"next: kvcanary check {path}")
    return 0


async def _found(connection: Connection) -> "Found":
    """Raises Unreachable when the front door could not be asked at all."""
    from kvcanary.data import data_path
    from kvcanary.deployment.discovery import discover, model_list, raise_unless_asked
    from kvcanary.deployment.template import Found
    from kvcanary.engines import openai
    from kvcanary.errors import Unauthorized
    from kvcanary.probing.client import Client
    from kvcanary.probing.endpoint import UNNAMED

    variable = connection.api_key_env or KEY_VARIABLE
    async with opened(connection) as target:
        endpoint = replace(target.endpoint, ca_file=_absolute(target.endpoint.ca_file))
        async with Client(endpoint) as client:
            listing = await model_list(client)
            served = tuple(model.name for model in openai.models(listing.value))
            if endpoint.model == UNNAMED and len(served) == 1:
                endpoint = replace(endpoint, model=served[0])
        facts, refused = None, False
        notes: tuple[str, ...] = ()
        try:
            raise_unless_asked(endpoint, listing)
            async with Client(endpoint) as client:
                facts = await discover(
                    client,
                    target.context_tokens,
                    context_source=target.context_source,
                    trust_discovered=target.trust_discovered,
                )
            notes = facts.notes
        except Unauthorized:
            refused = True
            notes = (
                f"The front door asks for a key: set {variable} and run `kvcanary init --force` again.",
            )
        return Found(
            endpoint=endpoint,
            schema=(data_path("reports") / "schemas" / SCHEMA).as_uri(),
            models=served,
            facts=facts,
            key_variable=variable,
            needs_key=refused or endpoint.api_key is not None,
            trust_discovered=target.trust_discovered,
            notes=notes,
        )


def _absolute(path: str | None) -> str | None:
    """The file may lie elsewhere than where the command was typed."""
    return str(Path(path).resolve()) if path else None

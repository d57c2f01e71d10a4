"""``kvcanary check``: run the suite and say what it is worth."""

import os
import time
from pathlib import Path

import click

from kvcanary.cli.output import OutputFormat, Reports, concluded, reports_option

KEY_VARIABLE = "KVCANARY_API_KEY"
MAX_CONTEXT = 1 << 30


@click.command(short_help="Check a deployment, or lab:NAME.")
@click.argument("target", metavar="URL|lab:NAME")
@click.option("--model", help="Model to test. Default: the only one that the server lists.")
@click.option(
    "--context",
    "context_tokens",
    type=click.IntRange(1, MAX_CONTEXT),
    metavar="TOKENS",
    help="Context limit that the deployment promises. Default: what the server tells.",
)
@click.option(
    "--api",
    type=click.Choice(["chat", "completions"]),
    default="chat",
    show_default=True,
    help="Which OpenAI-compatible call to use.",
)
@click.option(
    "--stream/--no-stream", default=True, show_default=True, help="Ask for streamed answers."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Most requests in flight, victims apart.",
)
@click.option(
    "--deadline",
    "deadline_seconds",
    type=click.FloatRange(min=0.1),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for one request.",
)
@click.option(
    "--api-key-env",
    default=KEY_VARIABLE,
    show_default=True,
    metavar="VARIABLE",
    help="Environment variable that holds the API key.",
)
@click.option(
    "--ca-file", type=click.Path(exists=True, dir_okay=False), help="PEM file of a private CA."
)
@click.option("--trust-env", is_flag=True, help="Take proxies from the environment.")
@click.option(
    "--trust-discovered",
    is_flag=True,
    help="Send the API key to workers that the front door names, too.",
)
@click.option(
    "--contact",
    metavar="TEXT",
    help="Whom to ask about the test: stands in every prompt. Default: whoever runs this endpoint.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the run record goes. Default: a new file in the user's state folder; its path is printed.",
)
@reports_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(OutputFormat),
    default=OutputFormat.TEXT,
    show_default=True,
    help="What is printed on standard output.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def check(
    target: str,
    model: str | None,
    context_tokens: int | None,
    api: str,
    stream: bool,
    concurrency: int,
    deadline_seconds: float,
    api_key_env: str,
    ca_file: str | None,
    trust_env: bool,
    trust_discovered: bool,
    contact: str | None,
    record: Path | None,
    reports: Reports,
    output: OutputFormat,
    quiet: bool,
) -> int:
    """Send canary prompts as several tenants to TARGET and judge the answers.

    TARGET is the base URL of an OpenAI-compatible server, usually ending in /v1, or lab:NAME for a
    deployment in a box (see `kvcanary lab list`).

    \b
    Exit codes:
      0  every required claim passes       2  could not run
      1  a claim fails                     3  a required claim is inconclusive

    \b
    Examples:
      kvcanary check lab:glm-5.3
      kvcanary check https://llm.example.com/v1 --model glm-5.3 --context 1048576
      KVCANARY_API_KEY=... kvcanary check https://llm.example.com/v1 --report junit=canary.xml
    """
    from kvcanary.cli.targets import opened
    from kvcanary.probing.endpoint import Api, Endpoint, SecretKey
    from kvcanary.report.progress import progress
    from kvcanary.run import (
        DEFAULT_CONTACT,
        Options,
        Result,
        default_record_path,
        new_identity,
        resolve_model,
        run_check,
    )

    key = os.environ.get(api_key_env)
    now = time.time()
    identity = new_identity(now)
    path = record or default_record_path(identity, now)

    async def run() -> Result:
        async with opened(target) as place:
            endpoint = Endpoint(
                base_url=place.base_url,
                model=model or place.model or "?",
                api=Api(api),
                stream=stream,
                api_key=SecretKey(key) if key else None,
                ca_file=ca_file,
                trust_env=trust_env,
            )
            endpoint = await resolve_model(endpoint, model or place.model)
            options = Options(
                target=place.name,
                context_tokens=context_tokens or place.context_tokens,
                concurrency=concurrency,
                deadline_seconds=deadline_seconds,
                contact=contact or DEFAULT_CONTACT,
                trust_discovered=trust_discovered,
                record=path,
                identity=identity,
            )
            with progress(quiet=quiet) as listener:
                return await run_check(endpoint, options, listener)

    return concluded(run(), path, output, reports)

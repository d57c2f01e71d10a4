"""``kvcanary advisories``: known faults of engines."""

import click

from kvcanary.errors import UsageError


@click.command(short_help="Known faults of engines.")
@click.option("--engine", metavar="NAME", help="Only those of one engine.")
def advisories(engine: str | None) -> int:
    """List the faults that `check` and `capacity` look for in the versions that run. Sends nothing."""
    from rich.text import Text

    from kvcanary.deployment.advisories import shipped_advisories
    from kvcanary.report.console import Output

    known = shipped_advisories()
    engines = sorted({advisory.engine for advisory in known})
    if engine is not None and engine not in engines:
        raise UsageError(
            f"No advisory is about `{engine}`. There are some for {', '.join(engines)}."
        )
    console = Output()
    for advisory in known:
        if engine not in (None, advisory.engine):
            continue
        console.print(
            Text(advisory.id, "bold"), Text(advisory.title), highlight=False, soft_wrap=True
        )
        fixed = f"; fixed in {advisory.fixed}" if advisory.fixed else ""
        lines = [
            ("affects", f"{advisory.engine} {advisory.range}{fixed}"),
            ("needs", ", ".join(advisory.needs)),
            ("fails when", ", ".join(advisory.reached_when)),
            ("what to do", " ".join(advisory.remedy.split())),
            ("source", advisory.source),
            ("see", ", ".join(advisory.references)),
        ]
        for name, text in lines:
            if text:
                console.print(Text(f"  {name:<11}{text}"), highlight=False, soft_wrap=True)
    return 0

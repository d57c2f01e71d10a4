"""``kvcanary probes``: what can be sent, and why."""

import click


@click.command(short_help="What can be sent, and why.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
def probes(files: tuple[str, ...]) -> int:
    """List the shipped probes, or check FILEs of your own and show them.

    A probe of your own runs from a suite of your own that names its path.
    """
    from rich.text import Text

    from kvcanary.probing.grammar import load_probe, shipped
    from kvcanary.report.console import Output

    console = Output()
    for reference in files or shipped("probes"):
        probe = load_probe(reference)
        console.print(Text(f"{probe.id}", "bold"), Text(probe.title), highlight=False)
        console.print(Text(f"  looks for  {', '.join(probe.mechanism)}"), soft_wrap=True)
        console.print(Text(f"  why        {' '.join(probe.why.split())}"), soft_wrap=True)
        console.print(Text(f"  blind to   {' '.join(probe.blind_to.split())}"), soft_wrap=True)
        console.print(Text(f"  steps      {', '.join(probe.groups)}"), soft_wrap=True)
        if probe.needs:
            console.print(Text(f"  needs      {', '.join(probe.needs)}"), soft_wrap=True)
        if probe.references:
            console.print(Text(f"  reports    {', '.join(probe.references)}"), soft_wrap=True)
    return 0

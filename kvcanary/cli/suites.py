"""``kvcanary suites``: which probes run together, what they require."""

import click


@click.command(short_help="Which probes run together, and what they require.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
def suites(files: tuple[str, ...]) -> int:
    """List the shipped suites, or check FILEs of your own and show them."""
    from rich.text import Text

    from kvcanary.probing.grammar import load_probes, load_suite, shipped
    from kvcanary.report.console import Output

    console = Output()
    for reference in files or shipped("suites"):
        suite = load_suite(reference)
        probes = load_probes(suite.probes)
        console.print(Text(suite.id, "bold"), Text(suite.title), highlight=False)
        console.print(Text(f"  probes     {', '.join(probe.id for probe in probes)}"))
        console.print(Text(f"  requires   {', '.join(c.value for c in suite.requires)}"))
        limits = [f"{suite.tokens} tokens"] if suite.tokens else []
        limits += [f"{suite.minutes:g} minutes"] if suite.minutes else []
        console.print(Text(f"  budget     {', '.join(limits) or 'no limit'}"))
        if suite.bound:
            console.print(Text(f"  bound      every stratum below {suite.bound:.2%} bad answers"))
        if suite.stop_when_proven:
            console.print(Text("  ends as soon as a leak or corruption is proven"))
        if suite.beside_traffic:
            console.print(Text("  beside real traffic: intrusive probes need --allow-intrusive"))
        if suite.pause_above:
            console.print(
                Text(f"  waits while more than {suite.pause_above:.0%} of a pool is in use")
            )
    return 0

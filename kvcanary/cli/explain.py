"""``kvcanary explain``: the documentation's own text about one thing that kvcanary says."""

from collections.abc import Iterable

import click

from kvcanary.errors import UsageError

PAGES = ("findings.md", "claims.md", "exit-codes.md")


@click.command(short_help="What a finding, claim, probe or exit code means.")
@click.argument("identifier", metavar="[ID]", required=False)
def explain(identifier: str | None) -> int:
    """Explain ID: a finding's rule (isolation/foreign-text), a claim (ownership), a probe (oversize) or
    an exit code (3). Without ID, list them all.
    """
    sections = _sections()
    if identifier is None:
        click.echo("\n".join(sections))
        return 0
    known = {name.removeprefix("exit "): text for name, text in sections.items()} | sections
    _require(identifier, known)
    from rich.markdown import Markdown

    from kvcanary.report.console import Output

    Output().print(Markdown(known[identifier]))
    return 0


def require_known(rules: Iterable[str]) -> None:
    """Raises UsageError for a rule that kvcanary does not have: a misspelt waiver waives nothing."""
    known = [name for name in _sections() if "/" in name]
    for rule in rules:
        _require(rule, known)


def _require(identifier: str, known: Iterable[str]) -> None:
    names = list(known)
    if identifier not in names:
        import difflib

        nearest = difflib.get_close_matches(identifier, names, n=1, cutoff=0.0)
        raise UsageError(
            f"There is no `{identifier}`; did you mean `{nearest[0]}`? "
            "`kvcanary explain` lists everything."
        )


def _sections() -> dict[str, str]:
    """Every second-level section of the pages by its heading, and every probe."""
    from kvcanary.data import data_path
    from kvcanary.probing.grammar import shipped

    sections: dict[str, str] = {}
    for page in PAGES:
        text = (data_path("docs") / page).read_text("utf-8")
        for part in text.split("\n## ")[1:]:
            heading, _, body = part.partition("\n")
            sections[heading.strip()] = f"## {heading}\n{body.strip()}\n"
    return sections | {name: _probe(name) for name in shipped("probes")}


def _probe(name: str) -> str:
    from kvcanary.probing.grammar import load_probe

    probe = load_probe(name)
    return "\n\n".join(
        (
            f"## {probe.id}",
            f"{probe.title}.",
            probe.why.strip(),
            f"**Looks for:** {', '.join(probe.mechanism)}. **Reports:** {', '.join(probe.references)}.",
            f"**Blind to:** {probe.blind_to.strip()}",
        )
    )

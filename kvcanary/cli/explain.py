"""``kvcanary explain``: the documentation's own text about one thing that kvcanary says."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kvcanary.errors import UsageError

if TYPE_CHECKING:
    from kvcanary.probing.grammar import Abort, Read, Step

PAGES = ("findings.md", "claims.md", "exit-codes.md")


@click.command(short_help="What a finding, claim, probe or exit code means.")
@click.argument("identifier", metavar="[ID]", required=False)
def explain(identifier: str | None) -> int:
    """Explain ID: a finding's rule (isolation/foreign-text), a claim (ownership), a probe (oversize), a
    mechanism (freed-too-early), a need (known-pool) or an exit code (3). Without ID, list them all.
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
    """Every second-level section of the pages by its heading, every probe, mechanism and need."""
    from kvcanary.data import data_path
    from kvcanary.probing.grammar import shipped
    from kvcanary.probing.mechanisms import Mechanism
    from kvcanary.probing.needs import Need

    sections: dict[str, str] = {}
    for page in PAGES:
        text = (data_path("docs") / page).read_text("utf-8")
        for part in text.split("\n## ")[1:]:
            heading, _, body = part.partition("\n")
            sections[heading.strip()] = f"## {heading}\n{body.strip()}\n"
    sections |= {name: _probe(name) for name in shipped("probes")}
    for words in (Mechanism, Need):
        sections |= {word.value: f"## {word.value}\n\n{word.meaning}." for word in words}
    return sections


def _probe(name: str) -> str:
    from kvcanary.probing.grammar import load_probe

    probe = load_probe(name)
    needs = [f"{need.value} ({need.meaning})" for need in probe.needs]
    return "\n\n".join(
        (
            f"## {probe.id}",
            f"{probe.title}.",
            probe.why.strip(),
            "**Looks for:**",
            "\n".join(f"- {m.value}: {m.meaning}" for m in probe.mechanism),
            f"**Reports:** {', '.join(probe.references)}.",
            f"**Needs:** {'; '.join(needs) or 'nothing'}.",
            "**Steps:**",
            "\n".join(f"1. {line}" for line in _steps(probe.steps)),
            f"**Blind to:** {probe.blind_to.strip()}",
        )
    )


def _steps(steps: "Sequence[Step]") -> Iterator[str]:
    """What is sent, a line a step."""
    from kvcanary.probing.grammar import Abort, Fill, Read, Together, Wait

    for step in steps:
        match step:
            case Together():
                yield f"at the same time: {'; '.join(_steps(step.steps))}"
            case Wait():
                yield f"wait {step.seconds:g} seconds" + (", or until idle" if step.until else "")
            case Fill():
                yield f"`{step.group}`: hold `{step.tokens}` tokens at once, then let go"
            case Abort():
                moments = ", ".join(map(str, step.at))
                yield (
                    f"`{step.group}`: drop a prompt of `{step.tokens}` tokens at {moments} of its first-token "
                    f"time, and read with another at once{_conditions(step)}"
                )
            case Read():
                what = "control" if step.control else "read"
                yield (
                    f"`{step.group}`: {what} with {step.count} prompts of `{step.tokens}` tokens"
                    + _conditions(step)
                )


def _conditions(step: "Read | Abort") -> str:
    when = "" if step.when == "1" else f", if `{step.when}`"
    return when + ("" if step.expect == "either" else f"; expected to be {step.expect.value}")

"""``kvcanary explain``: the documentation's own text about one thing that kvcanary says."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kvcanary.errors import UsageError

if TYPE_CHECKING:
    from kvcanary.detect.advisories import Advisory
    from kvcanary.probing.grammar import Abort, Read, Step

PAGES = ("findings.md", "claims.md", "exit-codes.md")


def _known(_ctx: object, _param: object, begun: str) -> list[str]:
    """For the shell: everything that can be explained."""
    return [name for name in explanations() if name.startswith(begun)]


@click.command(short_help="What a finding, claim, probe or exit code means.")
@click.argument("identifier", metavar="[ID]", required=False, shell_complete=_known)
def explain(identifier: str | None) -> int:
    """Explain ID: a finding's rule (isolation/foreign-text), a detector (first-token), a claim (ownership), a
    probe (oversize), a suite (predeploy), a mechanism (freed-too-early), a need (known-pool), an advisory or an
    exit code (3). Without ID, list them all.
    """
    sections = explanations()
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
    known = [name for name in explanations() if "/" in name]
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


def explanations() -> dict[str, str]:
    """Every second-level section of the pages by its heading, every probe, suite, mechanism, need and advisory,
    and the detectors that are no claim. Where names meet, what stands on a page comes first.
    """
    from kvcanary.data import data_path
    from kvcanary.deployment.advisories import shipped_advisories
    from kvcanary.probing.grammar import shipped
    from kvcanary.probing.mechanisms import Mechanism
    from kvcanary.probing.needs import Need

    pages: dict[str, str] = {}
    for page in PAGES:
        text = (data_path("docs") / page).read_text("utf-8")
        for part in text.split("\n## ")[1:]:
            heading, _, body = part.partition("\n")
            pages[heading.strip()] = f"## {heading}\n{body.strip()}\n"
    others = {advisory.id: _advisory(advisory) for advisory in shipped_advisories()}
    others |= {name: text for name, text in _detectors(pages).items() if name not in pages}
    for words in (Mechanism, Need):
        others |= {word.value: f"## {word.value}\n\n{word.meaning}." for word in words}
    for name in shipped("suites"):
        others[name] = _joined(_suite(name), others.get(name))
    for name in shipped("probes"):
        others[name] = _joined(_probe(name), others.get(name))
    return pages | others


def _joined(text: str, other: str | None) -> str:
    """A name that stands for two things is explained as both."""
    return f"{text}\n\n{other}" if other else text


def _detectors(pages: dict[str, str]) -> dict[str, str]:
    """The family of each rule: what it can find, each with the first sentence of its section."""
    families: dict[str, list[str]] = {}
    for rule, text in pages.items():
        family, slash, _ = rule.partition("/")
        if slash:
            first = text.split("\n")[1].split(". ")[0].rstrip(".")
            families.setdefault(family, []).append(f"- **{rule}**: {first}.")
    return {
        family: "\n".join([f"## {family}", "", "A detector. What it can find:", "", *lines])
        for family, lines in families.items()
    }


def _suite(name: str) -> str:
    from kvcanary.probing.grammar import load_suite

    suite = load_suite(name)
    return "\n\n".join(
        (
            f"## {name}",
            f"A suite. {suite.title}.",
            f"**Probes:** {', '.join(suite.probes)}.",
            f"**Requires:** {', '.join(c.value for c in suite.requires)}.",
        )
    )


def _advisory(advisory: "Advisory") -> str:
    return "\n\n".join(
        (
            f"## {advisory.id}",
            f"An advisory about {advisory.engine} {advisory.range}. {advisory.title}.",
            f"**What to do.** {' '.join(advisory.remedy.split())}",
        )
    )


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

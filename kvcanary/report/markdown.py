"""Markdown, for a comment or a step's summary: verdict, findings, claims, what was not measured.

GitHub takes comments of up to 65,536 characters; what does not fit is counted. Texts that were not written
here cannot become links, pictures, mentions, headings or HTML.
"""

import re
from collections.abc import Iterator

from kvcanary.record.run import RunRecord
from kvcanary.report.figures import figures
from kvcanary.report.summary import harmless
from kvcanary.verdict.claims import Claim, Status
from kvcanary.verdict.findings import Finding

MAX_CHARACTERS = 60_000
MAX_EVIDENCE = 6
MAX_SKIPPED = 30
MAX_TEXT = 1_000
_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|<>~&$])")
_NAME = re.compile(r"`([A-Za-z0-9][A-Za-z0-9 ./=-]{0,80})`")
_LIST = re.compile(r"^(\d*)([-+=.)])")
"""What makes a list, a rule or a heading of the line that it begins."""
_APART = "&#8203;"
"""A space of no width: keeps ``@name``, ``#1`` and addresses from becoming links."""


def render(record: RunRecord) -> str:
    """The report."""
    plain = harmless(record)
    parts = [*_head(plain)]
    room = MAX_CHARACTERS - sum(map(len, parts))
    tail = [*_tail(plain)]
    room -= sum(map(len, tail))
    for number, finding in enumerate(plain.findings, start=1):
        if number == 1:
            parts.append("\n### Findings\n")
        told = "".join(_finding(number, finding))
        if len(told) > room:
            parts.append(f"\nAnd {len(plain.findings) - number + 1} more in the record.\n")
            break
        room -= len(told)
        parts.append(told)
    return "".join((*parts, *tail))


def sentence(text: str) -> str:
    """Text that stands for itself; what is a plain name between backticks stays code."""
    pieces = _NAME.split(" ".join(text[:MAX_TEXT].split()))
    whole = "".join(f"`{p}`" if i % 2 else _escaped(p) for i, p in enumerate(pieces))
    return _LIST.sub(r"\1\\\2", whole)


def code(text: str) -> str:
    """Text as code, also in a table."""
    inner = " ".join(text[:200].replace("`", "'").replace("|", "\\|").split())
    return f"`{inner or '-'}`"


def _escaped(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", text)
    return re.sub(r"(@|\\#|www\.|/(?=/))(?=\S)", rf"\1{_APART}", escaped)


def _head(record: RunRecord) -> Iterator[str]:
    info, verdict, sums = record.info, record.verdict, figures(record)
    if verdict is None:
        yield f"## kvcanary: did not finish\n\n{sentence(record.stopped or 'It was cut off.')}\n\n"
    else:
        yield f"## kvcanary: {verdict.status.value.upper()}\n\n**{sentence(verdict.headline)}**\n\n"
        if record.stopped and verdict.headline != record.stopped:
            yield f"The run did not finish: {sentence(record.stopped)}\n\n"
    yield (
        f"Suite {code(info.suite)} against {code(info.target)}, model {code(info.model)}: "
        f"{sums.requests:,} requests, {sums.prompt_tokens:,} prompt tokens"
        + (f", {sums.seconds:,.0f} seconds" if sums.seconds is not None else "")
        + f". Run {info.run:07x}, kvcanary {sentence(info.kvcanary_version)}.\n"
    )


def _finding(number: int, finding: Finding) -> Iterator[str]:
    yield f"\n**F{number} {finding.severity.value}** {sentence(finding.title)} ({code(finding.rule)})\n\n"
    if finding.waived:
        yield f"- waived {sentence(finding.waived)}\n"
    for line in finding.evidence[:MAX_EVIDENCE]:
        yield f"- {sentence(line)}\n"
    more = len(finding.evidence) - MAX_EVIDENCE
    if more > 0:
        yield f"- and {more} more in the record\n"
    if finding.remedy:
        yield f"- What to do: {sentence(finding.remedy)}\n"


def _tail(record: RunRecord) -> Iterator[str]:
    if record.verdict is None:
        return
    yield "\n### Claims\n\n| claim | status | why |\n| --- | --- | --- |\n"
    for claim in record.verdict.claims:
        yield f"| {claim.name.value} | {_status(claim)} | {sentence(claim.text)} |\n"
    unknown = [*_not_measured(record)]
    if unknown:
        yield "\n### Not measured\n\n"
        yield from (f"- {line}\n" for line in unknown[:MAX_SKIPPED])
        if len(unknown) > MAX_SKIPPED:
            yield f"- and {len(unknown) - MAX_SKIPPED} more in the record\n"


def _status(claim: Claim) -> str:
    bold = f"**{claim.status.value}**"
    return bold if claim.required or claim.status is not Status.INCONCLUSIVE else "not assessed"


def _not_measured(record: RunRecord) -> Iterator[str]:
    if record.plan:
        yield from map(sentence, record.plan.skipped)
    if record.verdict:
        for advice in record.verdict.advice:
            if advice.on is None:
                yield f"whether {code(advice.switch)} is on: it cannot be seen"

"""Foreign content: text of another request in an answer, with the odds that chance put it there.

The odds of each form are computed over the whole run (every answer was a chance for chance), each form
has its part of one in a million, and names and private words are judged against phantoms, who
were dealt the same way and never sent. See ``kvcanary.canary.odds``.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary.canary import odds
from kvcanary.canary.codes import TAG_BITS
from kvcanary.canary.lexicon import NAME_BITS
from kvcanary.canary.run_number import begun
from kvcanary.record.exchange import Exchange, ForeignText, Form
from kvcanary.record.scale import Scale
from kvcanary.verdict.findings import Finding, Severity, stratum_of

WARNING_ODDS = 1e-4
"""Weaker evidence than this is what chance does every now and then: not worth a person's time."""


def findings(exchanges: Sequence[Exchange], scale: Scale) -> tuple[Finding, ...]:
    """One finding for each stratum with foreign text that chance does not explain."""
    windows = _Windows.of(exchanges)
    groups = sorted({e.group for e in exchanges if e.foreign})
    found = []
    for group in groups:
        members = [e for e in exchanges if e.group == group]
        best = min(
            *(_coded_odds(text, windows, scale) for e in members for text in e.foreign),
            len(groups) * _name_odds(members, scale),
            len(groups) * _word_odds(members, scale),
        )
        if best <= WARNING_ODDS:
            found.append(_finding(group, members, best, exchanges))
    unverified = [e for e in exchanges if e.nulls.unverified_codes]
    if unverified:
        found.append(_unverified(unverified))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Places in all the answers of a run where chance could have put part of a code or phrase."""

    whole_code: int
    code: int
    phrase: int

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> "_Windows":
        return cls(
            whole_code=max(1, sum(e.nulls.code_tests for e in exchanges)),
            code=max(1, sum(e.nulls.code_windows for e in exchanges)),
            phrase=max(1, sum(e.nulls.phrase_windows for e in exchanges)),
        )


def _coded_odds(text: ForeignText, windows: _Windows, scale: Scale) -> float:
    """Codes and phrases name their request by themselves."""
    if text.form is Form.CODE and text.tenant is None and text.whole:
        return windows.whole_code / 2.0**TAG_BITS  # of another run: verified by its tag alone
    if text.form is Form.CODE:
        return odds.partial_code(text.extent, windows.code, scale.planted_codes)
    if text.form is Form.PHRASE:
        return odds.phrase(text.extent, windows.phrase, scale.planted_slots)
    return 1.0


def _name_odds(members: Sequence[Exchange], scale: Scale) -> float:
    """Tenants' names among all name-shaped triples that these answers hold."""
    ours = {t.tenant for e in members for t in e.foreign if t.form is Form.NAME}
    seen = {number for e in members for number in e.nulls.names_seen}
    return odds.at_least(len(ours), max(len(seen), len(ours)), scale.tenants / 2.0**NAME_BITS)


def _word_odds(members: Sequence[Exchange], scale: Scale) -> float:
    """Tenants' private words among those of tenants and phantoms that these answers hold."""
    ours: dict[int | None, int] = {}
    for text in (t for e in members for t in e.foreign if t.form is Form.WORD):
        ours[text.tenant] = max(ours.get(text.tenant, 0), text.extent)
    phantom = {word for e in members for word in e.nulls.phantom_words}
    hits = sum(ours.values())
    share = scale.tenants / (scale.tenants + scale.phantoms)
    return odds.at_least(hits, hits + len(phantom), share)


def is_leak(value: float) -> bool:
    """Whether evidence of these odds may be called a leak."""
    return value <= odds.FORM_BUDGET


def _finding(
    group: str, members: Sequence[Exchange], best: float, everything: Sequence[Exchange]
) -> Finding:
    leak = is_leak(best)
    holding = [e for e in members if e.foreign]
    answers = sum(1 for e in members if e.answer_characters)
    count = f"{len(holding)} of {answers} answers in `{group}`"
    return Finding(
        rule="isolation/foreign-text" if leak else "isolation/foreign-text-suspected",
        severity=Severity.LEAK if leak else Severity.DEGRADED,
        stratum=group,
        title=f"{count} hold text of other requests"
        if leak
        else f"{count} hold words that may be another request's",
        evidence=tuple(line for e in holding for line in _lines(e, everything)),
        remedy="Isolate the deployment now: take it out of rotation for all tenants, keep its logs and this "
        "record, tell whoever answers for customer data. Pages of the requests named here were read by others."
        if leak
        else "Run again: real leaks repeat.",
        exchanges=tuple(e.number for e in holding),
        odds=best,
    )


def _lines(exchange: Exchange, everything: Sequence[Exchange]) -> list[str]:
    """A line for each other tenant whose text the answer holds, the strongest evidence first."""
    groups = {e.number: e.group for e in everything}
    identities = {e.tenant: e.identity for e in everything}
    owners: dict[tuple[int, int | None], list[ForeignText]] = {}
    for text in exchange.foreign:
        owners.setdefault((text.run, text.tenant), []).append(text)
    lines: list[tuple[bool, str]] = []
    for (run, tenant), texts in owners.items():
        named = sorted({t.request for t in texts if t.request is not None})
        if tenant is None:
            whose = (
                f"the run of {begun(run):%Y-%m-%d %H:%M} UTC ({run:07x}), "
                f"{_age(exchange.started_at - begun(run).timestamp())}request {_and(named)}"
            )
        elif named:
            whose = f"tenant {tenant}, request {_and(named)} ({groups.get(named[0], 'decoy')})"
        else:
            whose = f"tenant {tenant}"
        whose += _as_another(
            exchange.identity, identities.get(tenant) if tenant is not None else None
        )
        places = sorted(t.at_tokens for t in texts if t.at_tokens is not None)
        where = "" if not places else f", from about token {places[0]:,}"
        if len(places) > 1 and places[-1] > places[0]:
            where += f" to {places[-1]:,}"
        line = (
            f"request {exchange.number} ({exchange.length_tokens:,} tokens) holds text of {whose}{where}: "
            + _summed(texts)
            + (_SWAPPED if _is_anothers(exchange, owners) else "")
        )
        lines.append((not named, line))
    return [line for _, line in sorted(lines, key=lambda item: item[0])]


_SWAPPED = "; nothing in it is its own: the whole answer was another's, or all of the pages that it was made from"


def _is_anothers(
    exchange: Exchange, owners: dict[tuple[int, int | None], list[ForeignText]]
) -> bool:
    """One other's whole code, and nothing of its own."""
    texts = [text for mine in owners.values() for text in mine]
    whole = any(text.form is Form.CODE and text.whole for text in texts)
    return len(owners) == 1 and whole and exchange.read and not (exchange.kept or exchange.own)


def _as_another(reader: int | None, owner: int | None) -> str:
    """Where the two were sent as different tenants of the deployment file: by their places there."""
    if reader is None or owner is None or reader == owner:
        return ""
    return f", sent as tenants.{owner} of the deployment file and read as tenants.{reader}"


def _age(seconds: float) -> str:
    """``3 hours before, ``: how long ago it was planted, rounded down; nothing where clocks disagree."""
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size):,} {unit} before, "
    return "less than 2 minutes before, " if seconds >= 0 else ""


def _summed(texts: Sequence[ForeignText]) -> str:
    """``2 whole codes, 11 of 16 characters of a code, a whole phrase (9 words), its name``."""
    counts = Counter(describe(text) for text in texts)
    return ", ".join(what if count == 1 else f"{count} x {what}" for what, count in counts.items())


def describe(text: ForeignText) -> str:
    """One sighting in words, whole and partial told apart."""
    if text.form is Form.CODE and text.whole:
        return "a whole code" + (" (altered)" if text.altered else "")
    if text.form is Form.CODE:
        return f"part of a code ({text.extent} of 16 characters)"
    if text.form is Form.PHRASE:
        return f"{'a whole' if text.whole else 'part of a'} phrase ({text.extent} words)"
    if text.form is Form.NAME:
        return "its name"
    return f"{text.extent} of its private words"


def _and(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (" ..." if len(numbers) > 4 else "")


def _unverified(members: Sequence[Exchange]) -> Finding:
    count = sum(e.nulls.unverified_codes for e in members)
    return Finding(
        rule="isolation/unverified-code",
        severity=Severity.DEGRADED,
        stratum=stratum_of((e.group for e in members), "isolation"),
        title=f"{count} string{'s' if count > 1 else ''} of the shape of a code that this site did not make",
        evidence=tuple(
            f"request {e.number}: {e.nulls.unverified_codes} unverified" for e in members
        ),
        remedy="Another site's kvcanary may share the deployment, or somebody pasted one. No proof of a leak.",
        exchanges=tuple(e.number for e in members),
    )

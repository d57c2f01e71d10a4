"""Foreign content: text of another request in an answer, with the odds that chance put it there.

The odds of each form are computed over the whole run (every answer was a chance for chance), each form
may spend a quarter of one in a million, and names and private words are judged against phantoms, who
were dealt the same way and never sent. See ``kvcanary.canary.odds``.
"""

from collections.abc import Mapping, Sequence

from kvcanary.canary import odds
from kvcanary.canary.codes import TAG_BITS
from kvcanary.canary.lexicon import NAME_BITS
from kvcanary.record.exchange import Exchange, ForeignText, Form
from kvcanary.record.scale import Scale
from kvcanary.verdict.findings import Finding, Severity

WARNING_ODDS = 1e-4
"""Weaker evidence than this is what chance does every now and then: not worth a person's time."""


def findings(exchanges: Sequence[Exchange], scale: Scale) -> tuple[Finding, ...]:
    """One finding for each stratum with foreign text that chance does not explain."""
    chance = run_odds(exchanges, scale)
    found = []
    for group in sorted({e.group for e in exchanges if e.foreign}):
        members = [e for e in exchanges if e.group == group and e.foreign]
        best = min(_odds_of(text, chance) for e in members for text in e.foreign)
        if best <= WARNING_ODDS:
            found.append(_finding(group, members, best, exchanges))
    unverified = sum(e.nulls.unverified_codes for e in exchanges)
    if unverified:
        found.append(_unverified(unverified, exchanges))
    return tuple(found)


Odds = Mapping[tuple[Form, int], float]
"""(form, extent) -> odds in this run that chance alone shows one like it."""


def run_odds(exchanges: Sequence[Exchange], scale: Scale) -> dict[tuple[Form, int], float]:
    """What each kind of sighting in these answers is worth."""
    texts = [text for e in exchanges for text in e.foreign]
    code_windows = max(1, sum(e.nulls.code_windows for e in exchanges))
    phrase_windows = max(1, sum(e.nulls.phrase_windows for e in exchanges))
    result: dict[tuple[Form, int], float] = {}
    for text in texts:
        key = (text.form, text.extent)
        if text.form is Form.CODE:
            chance = odds.partial_code(text.extent, code_windows, scale.planted_codes)
            result[key] = max(chance, code_windows / 2.0**TAG_BITS) if _older(text, exchanges) else chance
        elif text.form is Form.PHRASE:
            result[key] = odds.phrase(text.extent, phrase_windows, scale.planted_slots)
    names = {text.tenant for text in texts if text.form is Form.NAME}
    shapes = {number for e in exchanges for number in e.nulls.names_seen}
    result[Form.NAME, 1] = odds.at_least(len(names), len(shapes), scale.tenants / 2.0**NAME_BITS)
    words: dict[int | None, int] = {}
    for text in texts:
        if text.form is Form.WORD:
            words[text.tenant] = max(words.get(text.tenant, 0), text.extent)
    phantom_words = {word for e in exchanges for word in e.nulls.phantom_words}
    hits = sum(words.values())
    share = scale.tenants / (scale.tenants + scale.phantoms)
    value = odds.at_least(hits, hits + len(phantom_words), share)
    result.update({(Form.WORD, extent): value for extent in range(1, 65)})
    return result


def _older(text: ForeignText, exchanges: Sequence[Exchange]) -> bool:
    return text.tenant is None and text.form is Form.CODE


def _odds_of(text: ForeignText, chance: Odds) -> float:
    return chance.get((text.form, text.extent), 1.0)


def is_leak(value: float) -> bool:
    """Whether evidence of these odds may be called a leak."""
    return value <= odds.FORM_BUDGET


def _finding(
    group: str, members: Sequence[Exchange], best: float, everything: Sequence[Exchange]
) -> Finding:
    leak = is_leak(best)
    answers = sum(1 for e in everything if e.group == group and e.answer_characters)
    lines = [line for e in members for line in _lines(e, everything)]
    return Finding(
        rule="isolation/foreign-text" if leak else "isolation/foreign-text-suspected",
        severity=Severity.LEAK if leak else Severity.DEGRADED,
        stratum=group,
        title=f"{len(members)} of {answers} answers in `{group}` hold text of other requests"
        if leak
        else f"{len(members)} of {answers} answers in `{group}` hold words that may be another request's",
        evidence=tuple(lines),
        remedy="Isolate the deployment now: take it out of rotation for all tenants, keep its logs and this "
        "record, tell whoever answers for customer data. The pages of the named requests were read by others."
        if leak
        else "Run again: real leaks repeat.",
        exchanges=tuple(e.number for e in members),
        odds=best,
    )


def _lines(exchange: Exchange, everything: Sequence[Exchange]) -> list[str]:
    groups = {e.number: e.group for e in everything}
    lines = []
    for text in exchange.foreign:
        if text.request is None:
            whose = f"tenant {text.tenant}"
        elif text.tenant is None:
            whose = f"request {text.request} of an older run ({text.run})"
        else:
            whose = f"request {text.request} ({groups.get(text.request, '?')}, tenant {text.tenant})"
        where = "" if text.at_tokens is None else f", from about token {text.at_tokens:,}"
        lines.append(f"request {exchange.number} shows {describe(text)} of {whose}{where}")
    return lines


def describe(text: ForeignText) -> str:
    """``a whole code``, ``11 of 16 characters of a code``, ``a part (4 words) of a phrase``."""
    if text.form is Form.CODE:
        if text.whole:
            return "a whole code" + (" (altered)" if text.altered else "")
        return f"{text.extent} of 16 characters of a code"
    if text.form is Form.PHRASE:
        extent = "a whole phrase" if text.whole else "part of a phrase"
        return f"{extent} ({text.extent} words)"
    if text.form is Form.NAME:
        return "the whole name"
    return f"{text.extent} private word{'s' if text.extent > 1 else ''}"


def _unverified(count: int, exchanges: Sequence[Exchange]) -> Finding:
    members = [e for e in exchanges if e.nulls.unverified_codes]
    return Finding(
        rule="isolation/unverified-code",
        severity=Severity.DEGRADED,
        stratum=members[0].group,
        title=f"{count} string{'s' if count > 1 else ''} of the shape of a code that this site did not make",
        evidence=tuple(
            f"request {e.number}: {e.nulls.unverified_codes} unverified" for e in members
        ),
        remedy="Another site's kvcanary may share the deployment, or somebody pasted one. No proof of a leak.",
        exchanges=tuple(e.number for e in members),
    )

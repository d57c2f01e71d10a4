"""Reads one answer in memory and keeps only what was recognised: own labels, foreign text, nulls."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvcanary.canary.codes import CodeId
from kvcanary.canary.prompt import CanaryPrompt, Position
from kvcanary.canary.recognise import CodeSeen, PhraseSeen, Recogniser, Sightings
from kvcanary.canary.tenants import Cast, Tenant
from kvcanary.record.exchange import ForeignText, Form, Labels, Nulls, Recall

PHRASE_WORDS = 6
"""Slot words of one verse: a whole phrase."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer says, without its text."""

    labels: Labels
    decoy_seen: bool | None
    foreign: tuple[ForeignText, ...]
    nulls: Nulls


def read_answer(
    text: str,
    prompt: CanaryPrompt,
    recogniser: Recogniser,
    cast: Cast,
    prompts: Mapping[int, CanaryPrompt],
) -> Reading:
    """Judge the answer to ``prompt`` against everything planted so far."""
    seen = recogniser.read(text, own=prompt.number)
    known = {prompt.tenant.index}
    decoy_code: CodeId | None = None
    if prompt.decoy:
        number, tenant = prompt.decoy
        decoy_code = CodeId(prompt.writer.run.number, number, 1)
        known.add(tenant.index)
    own = {code.identity for code in seen.codes if _belongs_to(code.identity, prompt)}
    foreign_codes = [c for c in seen.codes if c.identity not in own and c.identity != decoy_code]
    return Reading(
        labels=_labels(prompt, own),
        decoy_seen=None if decoy_code is None else any(c.identity == decoy_code for c in seen.codes),
        foreign=(
            *(_code(code, prompts, prompt.writer.run.number) for code in foreign_codes),
            *(_phrase(p, prompts) for p in seen.phrases if p.request != prompt.number),
            *_names(seen, cast, known, prompt),
            *_private_words(seen, cast, known, prompt),
        ),
        nulls=_nulls(seen, cast, known),
    )


def _belongs_to(identity: CodeId, prompt: CanaryPrompt) -> bool:
    return (identity.run, identity.request) == (prompt.writer.run.number, prompt.number)


def _labels(prompt: CanaryPrompt, own: set[CodeId]) -> Labels:
    """A label is kept when at least eight of its characters came back: nothing but its page has them."""
    kept = {p for p in Position if prompt.code_id(prompt.label_position(p)) in own}
    order = list(Position)
    asked = set(order[order.index(prompt.first_asked) :]) if prompt.decoy is None else set()
    recall = {
        position.value: Recall.KEPT
        if position in kept
        else Recall.LOST
        if position in asked
        else Recall.NOT_READ
        for position in Position
    }
    return Labels(**recall)


def _code(code: CodeSeen, prompts: Mapping[int, CanaryPrompt], run: int) -> ForeignText:
    identity = code.identity
    owner = prompts.get(identity.request) if identity.run == run else None
    return ForeignText(
        form=Form.CODE,
        request=identity.request,
        tenant=owner.tenant.index if owner else None,
        run=identity.run,
        at_tokens=_place(owner, owner.code_fraction(identity.position)) if owner else None,
        extent=code.characters,
        whole=code.whole,
        altered=code.altered,
    )


def _phrase(phrase: PhraseSeen, prompts: Mapping[int, CanaryPrompt]) -> ForeignText:
    owner = prompts[phrase.request]
    return ForeignText(
        form=Form.PHRASE,
        request=phrase.request,
        tenant=owner.tenant.index,
        run=owner.writer.run.number,
        at_tokens=_place(owner, owner.slot_fraction(phrase.slot)),
        extent=phrase.words,
        whole=phrase.words >= PHRASE_WORDS,
    )


def _names(
    seen: Sightings, cast: Cast, known: set[int], prompt: CanaryPrompt
) -> list[ForeignText]:
    return [
        ForeignText(
            form=Form.NAME,
            request=None,
            tenant=tenant.index,
            run=prompt.writer.run.number,
            extent=1,
            whole=True,
        )
        for tenant in _others(cast, known)
        if tenant.name_number in seen.names
    ]


def _private_words(
    seen: Sightings, cast: Cast, known: set[int], prompt: CanaryPrompt
) -> list[ForeignText]:
    return [
        ForeignText(
            form=Form.WORD,
            request=None,
            tenant=tenant.index,
            run=prompt.writer.run.number,
            extent=count,
            whole=count == len(tenant.private),
        )
        for tenant in _others(cast, known)
        if (count := len(seen.private_words.intersection(tenant.private)))
    ]


def _nulls(seen: Sightings, cast: Cast, known: set[int]) -> Nulls:
    own_names = {t.name_number for t in (*cast.tenants, *cast.phantoms) if t.index in known}
    phantom_words = {word for phantom in cast.phantoms for word in phantom.private}
    mine = {word for t in cast.phantoms if t.index in known for word in t.private}
    return Nulls(
        code_windows=seen.code_windows,
        phrase_windows=seen.phrase_windows,
        names_seen=tuple(sorted(seen.names - own_names)),
        phantom_words=tuple(sorted(seen.private_words & phantom_words - mine)),
        unverified_codes=seen.unverified_codes,
        complete=seen.complete,
    )


def _others(cast: Cast, known: set[int]) -> list[Tenant]:
    return [tenant for tenant in cast.tenants if tenant.index not in known]


def _place(owner: CanaryPrompt, fraction: float) -> int:
    """Words are nearly tokens: a fraction of the words is the same fraction of the tokens."""
    return round(fraction * owner.words)


